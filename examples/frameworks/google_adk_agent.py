"""A function around an agent of Google ADK.

These sessions live in memory, so a run that another process resumes starts a new session, with the question
and the critique. With a `DatabaseSessionService`, it continues the old session.
"""

from google.adk.agents import LlmAgent
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

shop = LlmAgent(
    name="shop", model=Gemini(model="gemini-2.5-flash"), instruction="You answer customers.", tools=[stock]
)
runner = InMemoryRunner(shop, app_name="shop")
sessions = runner.session_service
USER = {"app_name": "shop", "user_id": "shop"}


@reflected(criteria=[number])
async def answer(question, feedback, run):
    session = await sessions.create_session(**USER)
    base = base_version(run)
    before = None if base is None else await sessions.get_session(**USER, session_id=base.memo)
    for event in before.events if before else ():  # a copy: the session of that version stays as it was
        await sessions.append_event(session, event)
    prompt = question if base is None else feedback if before else f"{question}\n\n{feedback}"
    text, usage = "", TokenUsage()
    message = types.UserContent(prompt)
    async for event in runner.run_async(user_id="shop", session_id=session.id, new_message=message):
        if used := event.usage_metadata:
            usage += TokenUsage(used.prompt_token_count or 0, used.candidates_token_count or 0, requests=1)
        if event.is_final_response() and event.content:
            text = "".join(part.text or "" for part in event.content.parts)
    return Draft(text, usage, memo=session.id)
