"""Which of the SDK's errors each failure becomes: errors.py BASE_URL. The model `chat` is scripted by its messages."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)


def chat(text, model="chat", using=client, **more):
    messages = [{"role": "user", "content": text}]
    return using.chat.completions.create(model=model, messages=messages, **more)


def outcome(act):
    try:
        act()
    except openai.OpenAIError as error:
        body = getattr(error, "body", None) or {}
        return {
            "class": type(error).__name__,
            "is_api_error": isinstance(error, openai.APIError),
            "status": getattr(error, "status_code", None),
            "type": body.get("type"),
            "code": body.get("code"),
            "param": body.get("param"),
            "message": str(error),
        }
    return {"class": None}


def read_all(stream, parts):
    for chunk in stream:
        parts.extend(choice.delta.content or "" for choice in chunk.choices)


before_the_break = []
print(
    json.dumps(
        {
            "unknown_model": outcome(lambda: chat("hi", model="no-such-model")),
            "streamed_unknown_model": outcome(lambda: chat("hi", model="no-such-model", stream=True)),
            "embedded_unknown_model": outcome(lambda: client.embeddings.create(model="no-such-model", input="hi")),
            "completed_unknown_model": outcome(lambda: client.completions.create(model="no-such-model", prompt="hi")),
            "model_is_a_number": outcome(lambda: chat("hi", model=7)),
            "model_is_a_list": outcome(lambda: chat("hi", model=["chat"])),
            "model_is_missing": outcome(
                lambda: client.post("/chat/completions", body={"messages": []}, cast_to=object)
            ),
            "messages_is_a_number": outcome(lambda: chat("hi", extra_body={"messages": 7})),
            "stream_is_text": outcome(lambda: chat("hi", extra_body={"stream": "yes"})),
            "no_json": outcome(
                lambda: client.post(
                    "/chat/completions",
                    content=b"{",
                    options={"headers": {"content-type": "application/json"}},
                    cast_to=object,
                )
            ),
            "bad_header": outcome(lambda: chat("hi", extra_headers={"x-tidegate-priority": "urgent"})),
            "long_header": outcome(lambda: chat("hi", extra_headers={"x-long": "x" * 70_000})),
            "no_such_path": outcome(lambda: client.post("/no/such/path", body={}, cast_to=object)),
            "wrong_method": outcome(lambda: client.get("/chat/completions", cast_to=object)),
            "too_large": outcome(lambda: chat("x" * (2 << 20))),
            "dies": outcome(lambda: chat("die")),
            "no_replica": outcome(lambda: chat("hi", model="down")),
            "full": outcome(lambda: chat("hi", model="full")),
            "streamed_full": outcome(lambda: chat("hi", model="full", stream=True)),
            "silent": outcome(lambda: chat("stall")),
            "breaks_midway": outcome(lambda: read_all(chat("break", stream=True), before_the_break)),
            "before_the_break": "".join(before_the_break),
            "too_slow": outcome(lambda: chat("stall", using=client.with_options(timeout=0.5))),
            "replica_says_401": outcome(lambda: chat("stranger")),
            "replica_says_403": outcome(lambda: chat("forbidden")),
            "replica_says_400": outcome(lambda: chat("bad")),
            "replica_says_429": outcome(lambda: chat("limited")),
        }
    )
)
