"""Memory as the configuration describes it, with the model that it names behind the extraction (M9, M13, S14).

The tools by which an agent keeps its own memory of the user, in the mode `tool`, are here too (M15).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain.tools import ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from holdfast.agents.middleware.thread_data import RequestSettings, thread_of
from holdfast.agents.model_spans import asked as traced_call
from holdfast.config.loading import load_config
from holdfast.errors import ModelNotConfigured
from holdfast.memory import tools
from holdfast.memory.facts import SLOTS, SlotUpdate, turns_of
from holdfast.memory.model_extractor import ModelExtractor
from holdfast.memory.rules import RulesExtractor
from holdfast.memory.service import MemoryService
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import memory_model
from holdfast.tokens.accounts import Accounts
from holdfast.tokens.usage import Usage
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.config.sections import Config
    from holdfast.memory.document import Document
    from holdfast.memory.updater import Extractor


def open_memory(config: Config, *, model: BaseChatModel | None = None, accounts: Accounts | None = None, **parts: Any) -> MemoryService:
    """The service with its extractor: the rules when `extractor: rules` says so, or when no model is there that is good enough.

    `model` may be given; otherwise it is the one that `memory.model_name` names, else the lightweight one. It is made when something is
    first learned, so that memory can be read without it. Raises ModelNotConfigured when `extractor: model` is set and there is none.
    """

    @cache
    def chosen() -> Callable[[Document], Extractor] | None:
        return model_extractor(config, model=model, accounts=accounts)

    def extractor(document: Document) -> Extractor:
        make = chosen()
        return make(document) if make is not None else RulesExtractor()

    if config.memory.extractor == "model":
        chosen()
    return MemoryService.open(config, extractor=extractor, **parts)


_opened: dict[Path, tuple[Config, MemoryService]] = {}


def process_memory() -> MemoryService:
    """The memory below the base directory that the command line would use here: one for all of this process who give none."""
    config = load_config()
    held = _opened.get(config.base)
    if held is None or held[0] != config:
        held = _opened[config.base] = (config, open_memory(config))
    return held[1]


def model_extractor(
    config: Config, *, model: BaseChatModel | None = None, accounts: Accounts | None = None
) -> Callable[[Document], ModelExtractor] | None:
    """Makes the extractor that asks a model, for the document as it is then; None where the rules are used. Raises as `open_memory`."""
    wanted = config.memory.extractor
    if wanted == "rules":
        return None
    chosen = model if model is not None else memory_model(config)
    if chosen is None and wanted == "model":
        raise ModelNotConfigured(
            "`memory.extractor: model` is set, and there is no model that can extract facts.",
            hint="Configure one, or set `extractor: auto`: the rules are used then.",
        )
    return _extractors(chosen, accounts) if chosen is not None else None


def _extractors(model: BaseChatModel, accounts: Accounts | None) -> Callable[[Document], ModelExtractor]:
    window = find_window(model).tokens
    name = model_name_of(model)

    def ask(prompt: str, schema: dict[str, Any]) -> dict[str, Any] | str:
        """Ask in the schema where the model can, and quietly: nobody's stream and nobody's callbacks (S15)."""
        heard = _Heard()
        settings: Any = {"callbacks": [heard], "tags": ["nostream"], "run_name": "memory"}
        try:
            named = {"title": "memory_update", "description": "What is worth remembering about the user.", **schema}
            asked: Any = model.with_structured_output(named)
        except NotImplementedError:
            asked = model
        try:
            with traced_call(model, [HumanMessage(prompt)], purpose="memory") as told:
                parsed = asked.invoke([HumanMessage(prompt)], settings)
                told.append(heard.answer)
        except Exception:  # of the parser, if there is an answer: any class may stand there, and the answer is read as text then
            if heard.answer is None:
                raise
            parsed = None
        _charge(accounts, heard.answer, name)
        return parsed if isinstance(parsed, dict) else heard.answer.text if heard.answer is not None else ""

    def make(document: Document) -> ModelExtractor:
        return ModelExtractor(ask, limit=max(1000, min(6000, window // 2)), slots=lambda: _slots(document))

    return make


class _Heard(BaseCallbackHandler):
    """Hears the model's answer as it was given, with its usage.

    LangChain's own way to both (`include_raw`) runs the call in a pool of threads. At the end of a process there are none any more, and
    a call in one that hangs would keep the process from ending.
    """

    def __init__(self) -> None:
        self.answer: BaseMessage | None = None

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        found = response.generations[-1][-1] if response.generations and response.generations[-1] else None
        self.answer = getattr(found, "message", None)


def _slots(document: Document) -> list[SlotUpdate]:
    """The summaries as they are now, for the model to rewrite."""
    return [SlotUpdate(name, text) for name in SLOTS if (text := document.slot(name).text)]


def _charge(accounts: Accounts | None, message: Any, model: str) -> None:
    if accounts is not None and (usage := Usage.read(message)) is not None:
        accounts.charge(usage, model=model, purpose="memory")


def memory_tools(
    service: Callable[[], MemoryService], agent: str | None = None, *, write: bool = True, blocks: bool = False
) -> list[BaseTool]:
    """Search, add, update and remove, and reading and writing of blocks where there are any; without `write` what only reads.

    `service` says the memory when a tool is called; one that is not in the mode `tool` answers just that. What the user typed in the thread
    is the source. Whose memory it is, the request says, or it is `agent` (M3).
    """

    def memory() -> MemoryService:
        found = service()
        if not found.settings.enabled or found.settings.mode != "tool":
            raise ToolException("Memory has no tools here: it is learned from the conversation.")
        return found

    def whose(runtime: ToolRuntime[Any, Any]) -> str | None:
        return RequestSettings.read(runtime.config, runtime.context).agent_name or agent

    def said(runtime: ToolRuntime[Any, Any]) -> dict[str, Any]:
        return {"turns": turns_of(runtime.state.get("messages", ()), foreign=True), "thread": thread_of(runtime), "agent": whose(runtime)}

    def memory_search(query: str, runtime: ToolRuntime[Any, Any], top_k: int = 8) -> str:
        """Search what is known about the user."""
        return tools.memory_search(memory(), query, agent=whose(runtime), top_k=top_k)

    def memory_add(content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remember a fact about the user that the user stated. Write it as a description, for example: User prefers short answers."""
        return tools.memory_add(memory(), content, **said(runtime))

    def memory_update(id: str, content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Put a corrected fact in place of the one with this id."""
        return tools.memory_update(memory(), id, content, **said(runtime))

    def memory_remove(id: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remove a fact that is no longer true, by its id."""
        return tools.memory_remove(memory(), id, **said(runtime))

    def memory_read_block(name: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Read one of your memory blocks as it is now, in full."""
        return tools.memory_read_block(memory(), name, agent=whose(runtime))

    def memory_write_block(name: str, text: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Replace the text of one of your memory blocks."""
        return tools.memory_write_block(memory(), name, text, **said(runtime))

    functions: list[Any] = [memory_search, *([memory_read_block] if blocks else [])]
    if write:
        functions += [memory_add, memory_update, memory_remove, *([memory_write_block] if blocks else [])]
    return [StructuredTool.from_function(function, handle_tool_error=True) for function in functions]
