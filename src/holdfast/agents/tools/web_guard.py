"""What may be asked: http and https, on hosts of the public internet (A10); and for how long, over everything together.

A name is resolved here, every address that it resolves to is judged, and the connection then goes to the very address that was judged: a
name that answers differently a moment later gains nothing. Addresses of the user's own network are refused unless the settings name them.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from ssl import SSLContext
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpcore

from holdfast.errors import AddressRefused, ConfigError, WebError

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
"""From a host name and a port to the addresses as text. Raises OSError when there is none."""

_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")
# The registries of special addresses (RFC 6890), as of 2026: those that come with Python differ from one version to the next.
_INTERNET = IPv6Network("2000::/3")  # of the rest nothing is given out
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        [
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ],
    )
)
_SPECIAL_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")))


@dataclass(frozen=True, slots=True)
class Target:
    """An address that was judged: the parts of the URL, and the one IP address to connect to."""

    url: str
    scheme: str
    host: str
    port: int
    address: str


def system_resolver(host: str, port: int) -> Sequence[str]:
    """What the machine's own resolver says."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, looking also at the IPv4 address inside an IPv6 one.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("93.184.215.14", "127.0.0.1", "::ffff:10.0.0.1", "169.254.169.254")]
    [True, False, False, False]
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        return address in _INTERNET and not any(address in network for network in _SPECIAL_6)
    return not any(address in network for network in _SPECIAL_4)


@dataclass(frozen=True)
class Guard:
    """Judges addresses. `allow` names networks (`10.1.0.0/16`) and hosts (`wiki.example.internal`) that may be asked as well."""

    allow: Sequence[str] = ()
    resolver: Resolver = system_resolver
    _networks: tuple[IPv4Network | IPv6Network, ...] = field(init=False, repr=False)
    _hosts: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        networks, hosts = [], set()
        for entry in self.allow:
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                if "/" in entry or not entry.strip("."):
                    raise ConfigError(
                        f"{entry!r} is neither a network nor a host name.", key="allow", hint="Write for example 10.1.0.0/16."
                    ) from None
                hosts.add(entry.lower().rstrip("."))
        object.__setattr__(self, "_networks", tuple(networks))
        object.__setattr__(self, "_hosts", frozenset(hosts))

    def judge(self, url: str, seconds: float | None = None) -> Target:
        """The address to connect to, or AddressRefused, saying why. WebError when the name does not resolve, or not in `seconds`."""
        parts = _split(url)
        host, port = _host(parts, url), _port(parts, url)
        found = self._addresses(host, port, url, seconds)
        if host not in self._hosts:
            for address in found:
                if not (is_public(address) or any(address in network for network in self._networks)):
                    raise AddressRefused(
                        f"{shown(url)} leads to {address}, which is not a public address.",
                        address=shown(url),
                        hint="Name the host or its network under `allow` of the tool, if it is meant to be asked.",
                    )
        return Target(url, parts.scheme, host, port, str(found[0]))

    def _addresses(self, host: str, port: int, url: str, seconds: float | None) -> list[Address]:
        literal = _literal(host)
        if literal is not None:
            return [literal]
        try:
            texts = self.resolver(host, port) if seconds is None else _within(seconds, lambda: self.resolver(host, port))
            found = [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
        except TimeoutError as error:
            raise WebError(f"the host of {shown(url)} was not found in time.", address=shown(url)) from error
        except (OSError, ValueError, UnicodeError) as error:
            raise WebError(f"the host of {shown(url)} is not known: {error}.", address=shown(url)) from error
        if not found:
            raise WebError(f"the host of {shown(url)} has no address.", address=shown(url))
        return found


def _within(seconds: float, resolve: Callable[[], Sequence[str]]) -> Sequence[str]:
    """What a resolver says, or TimeoutError. The system's own cannot be stopped: it is left in a thread that keeps nobody waiting."""
    answer: Future[Sequence[str]] = Future()

    def run() -> None:
        try:
            answer.set_result(resolve())
        except Exception as error:  # noqa: BLE001 - whatever it raises is raised where it is waited for
            answer.set_exception(error)

    Thread(target=run, name="holdfast-resolver", daemon=True).start()
    return answer.result(timeout=max(0.0, seconds))


def shown(url: str) -> str:
    """The address without user, password, query and fragment: what may be said in an error."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{host}{port}{parts.path}"[:200] if parts.scheme and host else "the address"


def _split(url: str) -> SplitResult:
    if any(c.isspace() or not c.isprintable() or c == "\\" for c in url):  # clients differ in what they make of these
        raise AddressRefused("the address has a space, a backslash or an invisible character in it.", hint="Percent-encode it.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused(f"the address cannot be read: {error}.") from error
    if parts.scheme not in _PORTS:
        raise AddressRefused(f"{shown(url)} is not an http or https address.", hint="Only those two can be fetched.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused(f"{shown(url)} has a user name or password in it.", address=shown(url), hint="Leave them out.")
    return parts


def _host(parts: SplitResult, url: str) -> str:
    host = (parts.hostname or "").rstrip(".").lower()
    if not host:
        raise AddressRefused("the address names no host.", address=shown(url))
    if _literal(host) is not None:
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise AddressRefused(f"{shown(url)} has a host name that cannot exist.", address=shown(url)) from error


def _port(parts: SplitResult, url: str) -> int:
    port = parts.port if parts.port is not None else _PORTS[parts.scheme]
    if port == 0:
        raise AddressRefused(f"{shown(url)} names the port 0.", address=shown(url))
    return port


def _literal(host: str) -> Address | None:
    """An address written as a number, in any form that a connection would take: 127.1 and 0x7f000001 are loopback too."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    if host and all(c in "0123456789abcdefx." for c in host):
        try:
            return IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return None


class DeadlineBackend(httpcore.NetworkBackend):
    """Connects as httpcore does, with one limit over connecting, TLS, headers and body, however slowly bytes trickle in.

    No call waits longer than `left()` seconds, and none begins when that is zero."""

    def __init__(self, left: Callable[[], float]) -> None:
        self._left = left
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._inner.connect_tcp(host, port, _remaining(self._left, httpcore.ConnectTimeout), local_address, socket_options)
        return _DeadlineStream(stream, self._left)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._inner = inner
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _remaining(self._left, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _remaining(self._left, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, _remaining(self._left, httpcore.ConnectTimeout))
        return _DeadlineStream(inner, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _remaining(left: Callable[[], float], late: type[Exception]) -> float:
    seconds = left()
    if seconds <= 0:
        raise late("the time is over")
    return seconds
