"""Four conversations of four turns, none of them named: identity.py BASE_URL.

Chat, raw completions whose prompt grows, tools that are called, and images. Each prints its routes and replicas, turn
by turn. Answers become messages as the SDK gives them, untouched.
"""

import base64
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)
TURNS = 4


def way(raw):
    return [raw.headers.get("x-tidegate-route"), raw.headers.get("x-tidegate-replica")]


def ask(messages, **more):
    raw = client.chat.completions.with_raw_response.create(model="chat", messages=messages, **more)
    message = raw.parse().choices[0].message
    messages.append(message)
    return way(raw), message


def chat():
    messages = [{"role": "system", "content": "You know the tides."}]
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"When is high water, for the {turn}th time?"})
        yield ask(messages)[0]


def completions():
    prompt = "The pilot's log of a long day, in his own words, as far as they can be read at all. "
    for turn in range(TURNS):
        raw = client.completions.with_raw_response.create(model="chat", prompt=prompt)
        yield way(raw)
        prompt += raw.parse().choices[0].text + f" Entry {turn}: the wind turned, and we with it, twice. "


def tools():
    table = {
        "type": "function",
        "function": {"name": "tide_table", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}},
    }
    messages = [{"role": "user", "content": "When is high water at Brest?"}]
    for turn in range(TURNS):
        route, message = ask(messages, tools=[table])
        yield route
        for call in message.tool_calls or []:
            result = json.dumps({"port": json.loads(call.function.arguments)["port"], "high": f"0{turn}:12"})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            messages.append({"role": "user", "content": "And the day after?"})


def images():
    messages = []
    for turn in range(TURNS):
        picture = base64.b64encode(bytes([turn]) * 3000).decode()
        parts = [
            {"type": "text", "text": f"What is in picture {turn}?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        ]
        messages.append({"role": "user", "content": parts})
        yield ask(messages)[0]


print(json.dumps({story.__name__: list(story()) for story in (chat, completions, tools, images)}))
