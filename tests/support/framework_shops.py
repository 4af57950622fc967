"""A shop whose clerk is a scripted agent with a tool, in each framework that has an adapter."""

import json
from functools import partial

import agents
from agents import testing
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from redraft import QualityCriterion, ReflectionPattern
from redraft.integrations import langgraph, openai_agents
from redraft.loop import Retry

LOOK = {"item": "tea"}
"""The step of a model that looks at the stock; the other steps are texts and errors."""
USED = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
"""The usage of each call."""
NUMBER = QualityCriterion("number", "Says how many.", evaluator="regex", evaluator_config={"pattern": r"\d"})


def pattern(*criteria, **options):
    """A pattern of two revisions, by default with the criterion that there is a number."""
    options = {"max_iterations": 2, "retry": Retry(first_wait=0), "diversify": False, **options}
    return ReflectionPattern(quality_criteria=criteria or [NUMBER], **options)


class OpenAIShop:
    """An agent of the OpenAI Agents SDK; its model does these steps in turn."""

    kinds = ("user", "function_call", "function_call_output", "assistant", "user")
    refused = "takes an agent of the OpenAI Agents SDK"
    limit, over_limit = {"max_turns": 1}, "MaxTurnsExceeded"
    reflecting = staticmethod(openai_agents.reflecting)

    def __init__(self, *steps):
        agents.set_tracing_disabled(True)
        self.greeting = {"role": "user", "content": "Hello."}
        self.looked = []

        @agents.function_tool
        def stock(item: str) -> int:
            """Say how many there are."""
            self.looked.append(item)
            return 7

        self.model = testing.ScriptedModel([self._step(*numbered) for numbered in enumerate(steps)])
        self.agent = agents.Agent(name="shop", model=self.model, tools=[stock])

    def _step(self, number, step):
        if isinstance(step, Exception):
            return testing.ModelStep.raise_error(step)
        call = partial(testing.function_call, "stock", LOOK, call_id=f"c{number}")
        said = call() if step is LOOK else testing.assistant_message(step)
        return testing.ModelStep([said], agents.Usage(requests=1, **USED))

    @property
    def seen(self):
        """What each call of the model was sent: the kinds and texts of messages."""
        return [
            [(item.get("role") or item["type"], json.dumps(item)) for item in call.input]
            for call in self.model.calls
        ]


class GraphShop:
    """A graph of LangGraph; its model does these steps in turn."""

    kinds = ("human", "ai", "tool", "ai", "human")
    refused = "takes a compiled graph"
    limit, over_limit = {"config": {"recursion_limit": 2}}, "GraphRecursionError"
    greeting = HumanMessage("Hello.")
    reflecting = staticmethod(langgraph.reflecting)

    def __init__(self, *steps, saver=None):
        self.looked, self.seen = [], []
        model = GenericFakeChatModel(messages=(self._step(*numbered) for numbered in enumerate(steps)))

        @tool
        def stock(item: str) -> int:
            """Say how many there are."""
            self.looked.append(item)
            return 7

        async def answer(state):
            self.seen.append([(message.type, str(message.content)) for message in state["messages"]])
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", answer)
        graph.add_node("tools", ToolNode([stock]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self.agent = graph.compile(checkpointer=saver, name="shop")

    def _step(self, number, step):
        if step is not LOOK:
            return AIMessage(step, usage_metadata=USED) if isinstance(step, str) else step
        call = {"name": "stock", "args": LOOK, "id": f"c{number}"}
        return AIMessage("", usage_metadata=USED, tool_calls=[call])
