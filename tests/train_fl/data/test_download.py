"""Downloads: asked for, told where they fail, and never unpacked where they are not whole."""

from __future__ import annotations

import http.client
import io
import re
import tarfile
import urllib.error
import urllib.request

import pytest
from torchvision.datasets import CIFAR10, FashionMNIST

from train_fl.data.cifar10 import cifar10
from train_fl.data.dataset import DataSource
from train_fl.data.fashion_mnist import fashion_mnist


@pytest.mark.parametrize(("load", "name"), [(fashion_mnist, "FashionMNIST"), (cifar10, "CIFAR10")])
@pytest.mark.parametrize("error", [urllib.error.URLError("x"), http.client.IncompleteRead(b"")])
def test_download__that_fails_is_told(tmp_path, monkeypatch, load, name, error):
    def urlopen(*_, **__):
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    message = f"^cannot download {name} to {re.escape(repr(str(tmp_path)))}: .+"
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load(DataSource(tmp_path, download=True))


@pytest.mark.parametrize("load", [fashion_mnist, cifar10])
def test_download__is_not_tried_unless_asked_for(tmp_path, monkeypatch, load):
    tried = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **_: tried.append(a))
    with pytest.raises(ValueError, match="use the option --download"):
        load(DataSource(tmp_path))
    assert tried == []


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def no_internet(*_: object, **__: object) -> None:
    raise urllib.error.URLError("no route")


@pytest.mark.parametrize(
    "info",
    [
        member("../outside", size=3),
        member("cifar-10-batches-py", type=tarfile.SYMTYPE, linkname=".."),
        member("cifar-10-batches-py/a", type=tarfile.LNKTYPE, linkname="../../outside"),
    ],
)
def test_download__an_archive_that_leaves_its_folder_is_refused(tmp_path, monkeypatch, info):
    root = tmp_path / "data"
    root.mkdir()
    with tarfile.open(root / CIFAR10.filename, "w:gz") as archive:
        archive.addfile(info, io.BytesIO(b"abc"))
    # It has not the checksum of the archive: it is fetched anew, and not unpacked.
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    with pytest.raises(ValueError, match=r"^cannot download CIFAR10"):
        cifar10(DataSource(root, download=True))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not (root / "cifar-10-batches-py").is_symlink()


@pytest.mark.parametrize("content", [b"", b"\x80\x05K\x01"])
def test_download__old_files_of_torchvision_that_are_damaged_are_told(tmp_path, content):
    folder = tmp_path / "FashionMNIST" / "processed"
    folder.mkdir(parents=True)
    for name in (FashionMNIST.training_file, FashionMNIST.test_file):
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"^cannot download FashionMNIST .*"):
        fashion_mnist(DataSource(tmp_path, download=True))
