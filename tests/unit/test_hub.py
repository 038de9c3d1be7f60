"""What the Hugging Face hub may answer, simulated at its client's functions."""

from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from hacpo.errors import DataError
from hacpo.models import hub
from hacpo.models.identity import model_identity
from hacpo.models.resolve import resolve_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a hub that may be asked."""
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def refusal(kind: type[errors.HfHubHTTPError], status: int) -> Exception:
    request = httpx.Request("GET", "https://huggingface.co/org/name")
    return kind("a text\nof several lines", response=httpx.Response(status, request=request))


ANSWERS = [
    (refusal(errors.GatedRepoError, 403), "is gated; accept its licence at https://.*HF_TOKEN"),
    (refusal(errors.RepositoryNotFoundError, 401), "knows no such model, or it is private"),
    (refusal(errors.RevisionNotFoundError, 404), "no such revision; check revision"),
    (refusal(errors.RemoteEntryNotFoundError, 404), "has no config.json on the hub"),
    (errors.LocalEntryNotFoundError("offline"), "not to be had .*LocalEntryNotFoundError"),
    (errors.OfflineModeIsEnabled("offline"), "not to be had .*OfflineModeIsEnabled"),
    (httpx.ConnectError("no route"), r"not to be had .*\(ConnectError\); check the name and the"),
    (refusal(errors.HfHubHTTPError, 500), "not to be had .*HfHubHTTPError"),
    (errors.XetDownloadError("broken"), "not to be had .*XetDownloadError"),
]


@pytest.mark.parametrize(("answer", "said"), ANSWERS)
@pytest.mark.parametrize("is_pinned", [False, True])
def test_each_refusal_of_the_hub_is_one_line_with_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Exception,
    said: str,
    is_pinned: bool,
) -> None:
    """While the commit is asked for, and while a known one is downloaded."""

    def refuse(*_: Any, **__: Any) -> str:
        raise answer

    monkeypatch.setattr(hub, "_check_connection", lambda: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    revision = COMMIT if is_pinned else None
    with pytest.raises(DataError, match=said) as error:
        resolve_model("org/name", revision, tmp_path)
    assert str(error.value).startswith(f"agent model org/name at {revision or 'main'}: ")
    assert "\n" not in str(error.value)


def test_an_offline_client_says_which_setting_makes_it_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"\(HF_HUB_OFFLINE is set\)"):
        model_identity("org/name", None, tmp_path)
