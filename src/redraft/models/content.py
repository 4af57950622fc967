"""Texts, images and messages of Pydantic AI: the content of a query, and images to send."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._texts import short_repr
from redraft.errors import ConfigError, MissingExtraError
from redraft.types import Image, Message, PlainTask, with_images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import BinaryContent, ImageUrl, ModelMessage

Query: TypeAlias = "str | PlainTask | Sequence[str | ImageUrl | BinaryContent | ModelMessage | Message]"
"""A query to an agent: a text, a task, or texts and images, optionally after messages."""


def task_of_content(query: Sequence[Any]) -> PlainTask:
    """The task in a list of texts and images, after the messages of an earlier conversation.

    Raises `ConfigError` for messages after the query, and for items that are neither text nor image.
    """
    earlier: list[Message] = []
    content: list[Any] = []
    for item in query:
        messages = [item] if isinstance(item, Message) else _messages_of(item)
        if messages is None:
            content.append(item)
        elif content:
            raise ConfigError("The messages of an earlier conversation come before the texts and images.")
        else:
            earlier += messages
    text, images = _text_and_images(content)
    return PlainTask(text, messages=tuple(earlier), images=images)


def _messages_of(item: Any) -> list[Message] | None:
    """The messages in a message of Pydantic AI; None for anything else."""
    if isinstance(item, str | Image):
        return None
    try:
        from pydantic_ai import messages as m  # noqa: PLC0415 (plain text does not need it)
    except ImportError as error:
        raise MissingExtraError("A query with images or messages", "providers") from error
    if isinstance(item, m.ModelResponse):
        if unusable := [part for part in item.parts if not isinstance(part, m.TextPart | m.ThinkingPart)]:
            raise _unusable(unusable[0])
        return [Message("assistant", item.text or "")]
    if not isinstance(item, m.ModelRequest):
        return None
    messages = [Message("system", item.instructions)] if item.instructions else []
    for part in item.parts:
        if isinstance(part, m.SystemPromptPart):
            messages.append(Message("system", part.content))
        elif isinstance(part, m.UserPromptPart):
            content = [part.content] if isinstance(part.content, str) else part.content
            messages.append(with_images(*_text_and_images(content)))
        else:
            raise _unusable(part)
    return messages


def _unusable(part: object) -> ConfigError:
    return ConfigError(
        f"A query's messages may hold texts and images, not a {type(part).__name__}. After tool calls, give "
        "them to a wrapped agent: Agent.from_pydantic_ai(agent).with_options(message_history=messages)."
    )


def _text_and_images(content: Sequence[Any]) -> tuple[str, tuple[Image, ...]]:
    texts = [item for item in content if isinstance(item, str)]
    return "\n\n".join(texts), tuple(_image_of(item) for item in content if not isinstance(item, str))


def _image_of(item: Any) -> Image:
    if isinstance(item, Image):
        return item
    from pydantic_ai.messages import BinaryContent, ImageUrl  # noqa: PLC0415 (loaded by now)

    if isinstance(item, ImageUrl) and not item.url.startswith("data:"):
        return Image(url=item.url)
    binary: Any = BinaryContent.from_data_uri(item.url) if isinstance(item, ImageUrl) else item
    if not isinstance(binary, BinaryContent) or not binary.is_image:
        kind = getattr(binary, "media_type", None) or short_repr(item)
        raise ConfigError(
            f"A query holds texts and images, got {kind}; pass an image as "
            "ImageUrl(url), BinaryContent.from_path(path) or BinaryContent(data, media_type=...)."
        )
    if not binary.data:
        raise ConfigError(f"An image of the query has no bytes ({binary.media_type}).")
    return Image(binary.media_type, sha256(binary.data).hexdigest(), data=binary.data)


def image_content(image: Image) -> ImageUrl | BinaryContent:
    """An image in the form of Pydantic AI; raises `ConfigError` if its bytes are missing."""
    from pydantic_ai.messages import BinaryContent, ImageUrl  # noqa: PLC0415 (loaded by now)

    if image.url:
        return ImageUrl(image.url)
    if not image.data:
        raise ConfigError(f"The bytes of the image {image.digest!r} are missing; pass the image again.")
    return BinaryContent(image.data, media_type=cast("Any", image.media_type))
