"""Asking again and asking another: LangChain's own middlewares, told what is worth it, and errors in our words at the end.

From the outside in: `TypedErrors` translates what is left over, `Fallback` goes on to the next model, `Retry` asks the same one again.
This module imports LangChain; import it when an agent is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRequest, ModelResponse, ModelRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp

from holdfast.errors import HoldfastError, ModelError
from holdfast.models.failures import cause_of, is_retryable, kind_of, retry_after, typed

Answer: TypeAlias = "ModelResponse[Any] | AIMessage"
Handler: TypeAlias = "Callable[[ModelRequest[Any]], ModelResponse[Any]]"
AsyncHandler: TypeAlias = "Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]"


class TypedErrors(AgentMiddleware[Any, Any, Any]):
    """Turns the errors of providers into ours, with a hint. What is no failure of a model passes as it is."""

    def __init__(self, models: Sequence[str] = (), secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self.models = tuple(models)
        self._secrets = tuple(secrets)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> Answer:
        try:
            return handler(request)
        except Exception as error:  # looked at and raised again: nothing is swallowed
            if kind_of(error) is None:
                raise
            raise self._translated(error) from cause_of(error, self._secrets)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> Answer:
        try:
            return await handler(request)
        except Exception as error:  # as above
            if kind_of(error) is None:
                raise
            raise self._translated(error) from cause_of(error, self._secrets)

    def _translated(self, error: Exception) -> HoldfastError:
        """The error under the name of the model; after fallbacks it is the last one's, and all names are told."""
        return typed(error, model=", then ".join(self.models) or None, secrets=self._secrets)


class Retry(ModelRetryMiddleware[Any, Any]):
    """Asks again after a failure that may pass, with growing pauses, and no sooner than the server asked for."""

    def __init__(self, *, times: int = 2, first_delay: float = 1.0) -> None:
        super().__init__(max_retries=times, retry_on=is_retryable, on_failure="error", initial_delay=first_delay, max_delay=30.0)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> Answer:
        tries = 0

        def patient(request: ModelRequest[Any]) -> ModelResponse[Any]:
            nonlocal tries
            tries += 1
            try:
                return handler(request)
            except Exception as error:  # looked at and raised again, after the pause that the server asked for
                time.sleep(self._pause(error, tries))
                raise

        return super().wrap_model_call(request, patient)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> Answer:
        tries = 0

        async def patient(request: ModelRequest[Any]) -> ModelResponse[Any]:
            nonlocal tries
            tries += 1
            try:
                return await handler(request)
            except Exception as error:  # as above
                await asyncio.sleep(self._pause(error, tries))
                raise

        return await super().awrap_model_call(request, patient)

    def _pause(self, error: Exception, tries: int) -> float:
        return (retry_after(error) or 0.0) if tries <= self.max_retries and is_retryable(error) else 0.0


class Fallback(ModelFallbackMiddleware[Any, Any]):
    """Asks the next model when one failed. An error of ours that is not about the model (a limit, a full disk) ends the run instead."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> Answer:
        def watched(request: ModelRequest[Any]) -> ModelResponse[Any]:
            try:
                return handler(request)
            except HoldfastError as error:
                if isinstance(error, ModelError):
                    raise
                raise _Ended(error) from error

        try:
            return super().wrap_model_call(request, watched)
        except _Ended as ended:
            raise ended.error from None

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> Answer:
        async def watched(request: ModelRequest[Any]) -> ModelResponse[Any]:
            try:
                return await handler(request)
            except HoldfastError as error:
                if isinstance(error, ModelError):
                    raise
                raise _Ended(error) from error

        try:
            return await super().awrap_model_call(request, watched)
        except _Ended as ended:
            raise ended.error from None


class _Ended(GraphBubbleUp):
    """Carries an error past LangChain's middleware, which lets only its own control flow through."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(str(error))
        self.error = error


def middlewares(
    models: Sequence[str] = (),
    *,
    fallbacks: Sequence[BaseChatModel] = (),
    retries: int = 2,
    first_delay: float = 1.0,
    secrets: Sequence[str] = (),
) -> list[AgentMiddleware[Any, Any, Any]]:
    """The three in their order; without fallbacks or retries, fewer. `models` are the names to tell, the agent's own first."""
    chain: list[AgentMiddleware[Any, Any, Any]] = [TypedErrors(models, secrets)]
    if fallbacks:
        chain.append(Fallback(*fallbacks))
    if retries:
        chain.append(Retry(times=retries, first_delay=first_delay))
    return chain
