"""Two conversations of two turns at the same time, neither of them named: turns.py BASE_URL MODEL."""

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=280)
WORDS = (
    "harbour gate river lantern copper winter signal orchard pilot granite paper violin meadow anchor bridge "
    "thunder ladder silver market compass feather island garden mirror castle timber ribbon valley candle engine"
).split()


def story(seed):
    """Some 600 tokens that no other conversation begins with."""
    pick = random.Random(seed)
    return " ".join(f"{pick.choice(WORDS)} {pick.choice(WORDS)} {pick.randrange(100)}." for _ in range(85))


def turn(messages):
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, max_tokens=24, temperature=0, seed=1
    )
    answer = raw.parse()
    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    details = answer.usage.prompt_tokens_details
    return {
        "status": raw.status_code,
        "replica": raw.headers.get("x-tidegate-replica"),
        "route": raw.headers.get("x-tidegate-route"),
        "prompt": answer.usage.prompt_tokens,
        "cached": details.cached_tokens if details else None,
    }


def conversation(seed):
    messages = [{"role": "user", "content": f"Remember these words: {story(seed)} What are they about?"}]
    first = turn(messages)
    messages.append({"role": "user", "content": "Name one of them."})
    return [first, turn(messages)]


with ThreadPoolExecutor() as pool:
    print(json.dumps(list(pool.map(conversation, [1, 2]))))
