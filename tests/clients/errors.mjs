// Which of the SDK's errors each failure becomes: errors.mjs BASE_URL. Prints what errors.py prints.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0, timeout: 60_000 });

const chat = (text, more = {}, options = {}) =>
  client.chat.completions.create(
    { model: "chat", messages: [{ role: "user", content: text }], ...more },
    options,
  );

async function outcome(act) {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof OpenAI.OpenAIError)) throw error;
    return {
      class: error.constructor.name,
      is_api_error: error instanceof OpenAI.APIError,
      status: error.status ?? null,
      type: error.type ?? null,
      code: error.code ?? null,
      param: error.param ?? null,
      message: error.message,
    };
  }
  return { class: null };
}

const parts = [];
async function readAll(stream) {
  for await (const chunk of await stream) {
    for (const choice of chunk.choices) parts.push(choice.delta.content ?? "");
  }
}

const told = {
  unknown_model: await outcome(() => chat("hi", { model: "no-such-model" })),
  streamed_unknown_model: await outcome(() => chat("hi", { model: "no-such-model", stream: true })),
  embedded_unknown_model: await outcome(() => client.embeddings.create({ model: "no-such-model", input: "hi" })),
  completed_unknown_model: await outcome(() => client.completions.create({ model: "no-such-model", prompt: "hi" })),
  model_is_a_list: await outcome(() => chat("hi", { model: ["chat"] })),
  model_is_missing: await outcome(() => client.post("/chat/completions", { body: { messages: [] } })),
  model_is_a_number: await outcome(() => chat("hi", { model: 7 })),
  messages_is_a_number: await outcome(() => chat("hi", { messages: 7 })),
  stream_is_text: await outcome(() => client.post("/chat/completions", { body: { model: "chat", stream: "yes" } })),
  no_json: await outcome(() =>
    client.post("/chat/completions", { body: new TextEncoder().encode("{"), headers: { "content-type": "application/json" } }),
  ),
  bad_header: await outcome(() => chat("hi", {}, { headers: { "x-tidegate-priority": "urgent" } })),
  long_header: await outcome(() => chat("hi", {}, { headers: { "x-long": "x".repeat(70_000) } })),
  no_such_path: await outcome(() => client.post("/no/such/path", { body: {} })),
  wrong_method: await outcome(() => client.get("/chat/completions")),
  too_large: await outcome(() => chat("x".repeat(2 << 20))),
  dies: await outcome(() => chat("die")),
  no_replica: await outcome(() => chat("hi", { model: "down" })),
  full: await outcome(() => chat("hi", { model: "full" })),
  streamed_full: await outcome(() => chat("hi", { model: "full", stream: true })),
  silent: await outcome(() => chat("stall")),
  breaks_midway: await outcome(() => readAll(chat("break", { stream: true }))),
  before_the_break: parts.join(""),
  too_slow: await outcome(() => chat("stall", {}, { timeout: 500 })),
  replica_says_401: await outcome(() => chat("stranger")),
  replica_says_403: await outcome(() => chat("forbidden")),
  replica_says_400: await outcome(() => chat("bad")),
  replica_says_429: await outcome(() => chat("limited")),
};
console.log(JSON.stringify(told));
