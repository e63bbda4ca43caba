"""The same chat whole and as a stream: stream.py BASE_URL MODEL."""

import json
import sys

import openai

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=280)
chat = {
    "model": model,
    "messages": [{"role": "user", "content": "What is a tide? Answer in one sentence."}],
    "max_tokens": 24,
    "temperature": 0,
    "seed": 7,
}

whole = client.chat.completions.create(**chat)
parts, usage, finish = [], None, None
for chunk in client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}):
    if chunk.usage:
        usage = chunk.usage
    for choice in chunk.choices:
        parts.append(choice.delta.content or "")
        finish = choice.finish_reason or finish
print(
    json.dumps(
        {
            "whole": whole.choices[0].message.content,
            "whole_tokens": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
            "streamed": "".join(parts),
            "streamed_tokens": usage and [usage.prompt_tokens, usage.completion_tokens],
            "pieces": sum(1 for part in parts if part),
            "finish": [whole.choices[0].finish_reason, finish],
        }
    )
)
