"""Secrets in texts and configurations: found in every form, and nothing else is hidden."""

import pytest

from diagevo.config.loading import of_profile
from diagevo.config.shipped import PROFILES
from diagevo.text import redaction
from diagevo.text.redaction import holds_secret, is_variable, key_from, masked, redacted

S = "Tr0ub4dor&3"[:8]  # Tr0ub4do


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:Tr0ub4do@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://u:p@Tr0ub4do@h/db", "postgresql://u:***@h/db"),  # an @ that was not escaped
        ("postgresql://u:p/Tr0ub4do@h/db", "postgresql://u:***@h/db"),
        ("postgresql:u:Tr0ub4do@h/db", "postgresql:u:***@h/db"),
        ("u:Tr0ub4do@h/db", "u:***@h/db"),
        ("postgresql://u@h/db?sslpassword=Tr0ub4do&x=1", "postgresql://u@h/db?sslpassword=***&x=1"),
        ("postgresql://h/db?password=Tr0ub4do", "postgresql://h/db?password=***"),
        ("https://h/v1?sv=2&sig=Tr0ub4do", "https://h/v1?sv=2&sig=***"),
        ("https://h/v1?token=Tr0ub4do", "https://h/v1?token=***"),
        ("https://h/v1?client_secret=Tr0ub4do#x", "https://h/v1?client_secret=***"),
        ("https://h/v1?X-Amz-Signature=Tr0ub4do", "https://h/v1?X-Amz-Signature=***"),
        ("data=https://h/v1?token=Tr0ub4do", "data=https://h/v1?token=***"),  # a value within a value
        ("https://Tr0ub4do@h/v1", "https://***@h/v1"),
        ("--api-key Tr0ub4do --port 1", "--api-key *** --port 1"),
        ("--hf-token=Tr0ub4do", "--hf-token=***"),
        ("['--api-key', 'Tr0ub4do', '--port', '1']", "['--api-key', '***', '--port', '1']"),
        ("options=[--api-key, Tr0ub4do, --port, 1]", "options=[--api-key, *** --port, 1]"),
        ("host=h password='Tr0ub4do x' user=u", "host=h password='***' user=u"),
        ("password='Tr0ub4do cut", "password='***"),
        ('{"api_key": "Tr0ub4do", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("api_key: Tr0ub4do", "api_key: ***"),
        ("Authorization: Bearer Tr0ub4do", "Authorization: Bearer ***"),
        ("'x-api-key': 'Tr0ub4do'", "'x-api-key': '***'"),
        ("no model sk-Tr0ub4doTr0ub4doTr0 here", "no model *** here"),
        ("no model hf_Tr0ub4doTr0ub4doTr0 here", "no model *** here"),
    ],
)
def test_a_secret_is_masked_and_what_is_around_it_stays(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert S not in masked(f"what: {text}, and so on\n{text}")
    assert holds_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user@host:5432/db",
        "sqlite:////home/me@site/runs/diagevo.db",
        "http://127.0.0.1:8000/v1",
        "--set roles.embedder.api_key_env: a name is needed",
        "write --set key.path=value",
        "export OPENAI_API_KEY=…",
        "max_tokens=1024 --tokenizer-mode auto --max-num-batched-tokens 8",
        "found unexpected token: ':'",
        "c42 fails to check candidates against the original domain",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("profile", PROFILES)
def test_no_profile_holds_what_counts_as_a_secret(profile: str) -> None:
    assert not holds_secret(of_profile(profile).config.model_dump(mode="json"))


def test_secrets_of_a_tree_are_masked_by_their_names_and_options() -> None:
    tree = {
        "options": ["--api-key", S, f"--hf-token={S}", "--port", "1"],
        "api_key_env": "OPENAI_API_KEY",
        "nested": [{"password": S, "tokens": 3, "token": None}],
        "tokenizer": {"pad_token": "<pad>", "eos_token_id": 2},
    }
    assert redacted(tree) == {
        "options": ["--api-key", "***", "--hf-token=***", "--port", "1"],
        "api_key_env": "OPENAI_API_KEY",
        "nested": [{"password": "***", "tokens": 3, "token": None}],
        "tokenizer": {"pad_token": "<pad>", "eos_token_id": 2},
    }


def test_a_key_is_masked_wherever_a_text_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, in a URL, and in JSON: whatever a server makes of it."""
    monkeypatch.setenv("OPENAI_API_KEY", 'o dd/"key" 1234')
    for form in (
        'o dd/"key" 1234',
        "o%20dd%2F%22key%22%201234",
        "o+dd%2F%22key%22+1234",
        'o dd/\\"key\\" 1234',
    ):
        assert masked(f"you sent <{form}>") == "you sent <***>"


def test_a_key_is_masked_from_the_moment_it_is_read_whatever_its_variable_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "_remembered", set())
    monkeypatch.setenv("MY_MODEL_ACCESS", "0123456789abcdef")
    assert masked("no such user 0123456789abcdef!") == "no such user 0123456789abcdef!"
    assert key_from("MY_MODEL_ACCESS") == "0123456789abcdef"
    assert masked("no such user 0123456789abcdef!") == "no such user ***!"


def test_a_word_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services of one's own take any key; "none" must not vanish from every message."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("PGPASSWORD", "postgres")
    key_from("OPENAI_API_KEY")
    assert masked("there is none: postgresql://h/db") == "there is none: postgresql://h/db"


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("OPENAI_API_KEY", True),
        ("MY_KEY_2", True),
        ("DASHSCOPE_API_KEY_FOR_GPT4_TURBO_128K", True),
        ("sk-abc123", False),
        ("hf_AbCdEfGhIjKlMnOpQr", False),
        ("d41d8cd98f00b204e9800998ecf8427e", False),
        ("A B", False),
        ("", False),
    ],
)
def test_a_token_is_no_name_of_a_variable(name: str, right: bool) -> None:
    assert is_variable(name) is right


def test_the_folder_that_a_shell_is_in_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/srv/projects/mine")
    monkeypatch.setenv("OLDPWD", "/srv/projects/other")
    told = "there is no database at /srv/projects/mine/runs/diagevo.db, nor in /srv/projects/other"
    assert masked(told) == told
