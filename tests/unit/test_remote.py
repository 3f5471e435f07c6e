"""Requests to a remote execution server, without one: its address, the files of an action, uploads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from mlir_offload.driver.remote.address import (
    RemoteOptions,
    parse_address,
    parse_platform,
    read_token,
)
from mlir_offload.driver.remote.blob import BlobId, FileBlobs, RemoteFiles, blob_of
from mlir_offload.driver.remote.protocol import reapi
from mlir_offload.driver.remote.request import RemoteAction, check_paths, describe
from mlir_offload.driver.remote.server import RemoteServer
from mlir_offload.driver.step.action import Action
from mlir_offload.toolchain.errors import InputOutputError, UsageError, VerificationError


@pytest.mark.parametrize(
    ("url", "target", "instance", "is_secure"),
    [
        ("grpcs://farm.example:443", "farm.example:443", "", True),
        ("grpcs://farm.example:8980/a/b/", "farm.example:8980", "a/b", True),
        ("grpc://127.0.0.2:1/main", "127.0.0.2:1", "main", False),
        ("grpc://localhost:1", "localhost:1", "", False),
        ("grpc://[::1]:1", "[::1]:1", "", False),
    ],
)
def test_a_url_names_a_server_and_an_instance(
    url: str, target: str, instance: str, *, is_secure: bool
) -> None:
    found = parse_address(url)
    assert (found.target, found.instance, found.is_secure) == (target, instance, is_secure)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("farm.example:443", "neither with grpcs://"),
        ("https://farm.example:443", "neither with grpcs://"),
        ("grpcs://farm.example", "no host and port"),
        ("grpcs://:443", "no host and port"),
        ("grpcs://farm.example:x", "not an address of a server"),
        ("grpcs://farm.example:99999", "not an address of a server"),
        ("grpcs://user:secret@farm.example:443", "all that it may name"),
        ("grpcs://farm.example:443/a?token=x", "all that it may name"),
        ("grpc://farm.example:443", "without TLS"),
        ("grpc://10.0.0.1:443", "without TLS"),
    ],
)
def test_what_is_no_address_or_has_no_tls_is_refused(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        parse_address(url)
    assert raised.value.hint


def test_properties_are_sorted_and_may_be_given_together() -> None:
    assert parse_platform(["b=2,a=1", "c=x=y"]) == (("a", "1"), ("b", "2"), ("c", "x=y"))
    with pytest.raises(UsageError, match="not a property"):
        parse_platform(["linux"])


def test_a_token_is_one_word_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc.def\n")
    assert read_token(file) == "abc.def"
    for wrong in ("", "two words", "gr\u00fc\u00df"):
        file.write_text(wrong)
        with pytest.raises(UsageError, match="does not contain a token"):
            read_token(file)
    with pytest.raises(InputOutputError, match="No such file"):
        read_token(tmp_path / "none")


def action_of(*inputs: str, consulted: tuple[str, ...] = ()) -> Action:
    return Action(
        ("--device-step", "-c", "a"),
        tuple(map(PurePosixPath, inputs)),
        (PurePosixPath("build/o"),),
        "id",
        tuple(map(PurePosixPath, consulted)),
        (("SOURCE_DATE_EPOCH", "1"),),
        PurePosixPath("build/o.d"),
    )


def described(root: Path, action: Action) -> RemoteAction:
    return describe(action, ("--message-format=json",), root, FileBlobs(), (("os", "linux"),))


def contents(remote: RemoteAction) -> Mapping[str, bytes]:
    return {blob.id.hash: b"".join(blob.chunks()) for blob in remote.blobs}


def tree(found: Mapping[str, bytes], digest: Any) -> dict[str, object]:
    folder = reapi.Directory.FromString(found[digest.hash])
    names = [item.name for item in folder.files]
    assert names == sorted(names)
    return {item.name: found[item.digest.hash] for item in folder.files} | {
        item.name: tree(found, item.digest) for item in folder.directories
    }


def test_an_action_is_a_command_and_the_files_that_it_declares(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a", "b", "sub/c", "undeclared"):
        (tmp_path / name).write_text(f"content of {name}")
    remote = described(tmp_path, action_of("b", "a", consulted=("sub/c", "not-there")))
    found = contents(remote)
    action = reapi.Action.FromString(found[remote.name.id.hash])
    command = reapi.Command.FromString(found[action.command_digest.hash])
    assert tree(found, action.input_root_digest) == {
        "a": b"content of a",
        "b": b"content of b",
        "sub": {"c": b"content of sub/c"},
    }
    assert list(command.arguments) == [
        *("mlir-offload", "--device-step", "-c", "a", "--message-format=json")
    ]
    variables = {item.name: item.value for item in command.environment_variables}
    assert variables == {"PATH": "/usr/local/bin:/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1"}
    assert list(command.output_paths) == list(command.output_files) == ["build/o", "build/o.d"]
    assert [(item.name, item.value) for item in action.platform.properties] == [("os", "linux")]
    assert action.platform == command.platform


def test_an_action_differs_if_an_input_does_and_not_by_place(tmp_path: Path) -> None:
    names = []
    for place, text in (("one", "x"), ("two", "x"), ("three", "y")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "a").write_text(text)
        names.append(described(tmp_path / place, action_of("a")).name.id)
    assert names[0] == names[1] != names[2]


def test_a_file_that_is_edited_meanwhile_is_not_sent_under_its_old_name(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    blob = FileBlobs().find(file)
    file.write_text("new")
    with pytest.raises(InputOutputError, match="was changed while the build read it"):
        list(blob.chunks())


def test_a_file_that_is_edited_between_steps_gets_another_name(tmp_path: Path) -> None:
    files, file = FileBlobs(), tmp_path / "a"
    file.write_text("old")
    first = files.find(file)
    file.write_text("other")
    assert files.find(file).id != first.id


@pytest.mark.parametrize("path", ["/usr/lib/x.bc", "../x.bc", "a/../../x.bc"])
def test_an_input_that_a_worker_does_not_have_is_refused(path: str) -> None:
    manifest = Path("offload.yaml")
    check_paths([PurePosixPath("a/b.bc")], "device", manifest)
    with pytest.raises(UsageError, match="which a worker does not have") as raised:
        check_paths([PurePosixPath(path)], "device", manifest)
    assert raised.value.location == "offload.yaml"


class Storage:
    """A server's files, with the most that fits into a message; it counts messages."""

    batch_bytes = 100
    instance = "main"

    def __init__(self) -> None:
        self.address = parse_address("grpc://localhost:1/main")
        self.files: dict[str, bytes] = {}
        self.messages: list[str] = []
        self.cas = self

    def connection(self) -> Storage:
        return self

    def call(self, method: Any, request: Any) -> Any:
        return method(request)

    def FindMissingBlobs(self, request: Any) -> Any:  # noqa: N802 (of the API)
        self.messages.append("find")
        missing = [one for one in request.blob_digests if one.hash not in self.files]
        return reapi.FindMissingBlobsResponse(missing_blob_digests=missing)

    def BatchUpdateBlobs(self, request: Any) -> Any:  # noqa: N802
        self.messages.append(f"update {len(request.requests)}")
        assert sum(len(one.data) for one in request.requests) <= self.batch_bytes
        self.files |= {one.digest.hash: one.data for one in request.requests}
        return reapi.BatchUpdateBlobsResponse()

    def BatchReadBlobs(self, request: Any) -> Any:  # noqa: N802
        self.messages.append(f"read {len(request.digests)}")
        answer = reapi.BatchReadBlobsResponse()
        for digest in request.digests:
            answer.responses.add(digest=digest, data=self.files[digest.hash])
        return answer


def test_files_are_sent_once_and_as_many_in_a_message_as_fit() -> None:
    storage = Storage()
    remote = RemoteFiles(storage)  # type: ignore[arg-type]  # what it uses of a server
    blobs = [blob_of(bytes([number]) * 40) for number in range(5)]
    remote.upload(blobs)
    assert storage.messages == ["find", "update 2", "update 2", "update 1"]
    remote.upload(blobs)
    assert storage.messages[4:] == []
    remote.forget()
    remote.upload(blobs)
    assert storage.messages[4:] == ["find"]
    found = remote.fetch([blob.id for blob in blobs], {blobs[0].id: blobs[0].data})
    assert found == {blob.id: blob.data for blob in blobs}
    assert storage.messages[5:] == ["read 2", "read 2"]


def test_a_file_that_is_not_what_its_name_says_is_refused() -> None:
    storage = Storage()
    remote = RemoteFiles(storage)  # type: ignore[arg-type]
    blob = blob_of(b"content")
    storage.files[blob.id.hash] = b"CONTENT"
    with pytest.raises(VerificationError, match="other content"):
        remote.fetch([blob.id], {})
    with pytest.raises(VerificationError, match="other content"):
        remote.fetch([], {BlobId(blob.id.hash, 7): b"contenT"})


def test_a_replaced_token_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    options = RemoteOptions("grpc://localhost:1", token=file)
    server = RemoteServer(parse_address(options.url), options, (), ())
    for token in ("first", "second"):
        file.write_text(token)
        assert server.metadata() == (("authorization", f"Bearer {token}"),)
