"""Workflows whose models are scripted."""

from redraft import ScriptedModel


def script_workflows(monkeypatch, *replies):
    """Let every model that a workflow names answer with these replies, and return that model.

    One reply that is a function of the request answers all of them.
    """
    one = replies[0] if len(replies) == 1 and callable(replies[0]) else list(replies)
    model = ScriptedModel(one)

    def model_of(given, _settings=None, **_missing):
        return model if isinstance(given, str | None) else given

    monkeypatch.setattr("redraft.workflow.runtime.model_of", model_of)
    return model
