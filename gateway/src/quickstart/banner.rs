//! The lines that a person pastes to try a running quickstart. Only text.

use super::MODEL;

/// Three lines to paste: a chat with curl and one with OpenAI's SDK for Python into a shell, the status page into a
/// browser; `curl` gets the same page. `base` and `admin` are URLs without a trailing slash, `http://127.0.0.1:8080` and `http://127.0.0.1:8081`.
pub fn banner(base: &str, admin: &str) -> String {
    [curl(base), sdk(base), status(admin)].join("\n")
}

pub(super) fn curl(base: &str) -> String {
    format!(
        "curl -s {base}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is a tide?\"}}]}}'"
    )
}

/// Takes `pip install openai`.
pub(super) fn sdk(base: &str) -> String {
    format!(
        "python3 -c 'import openai; print(openai.OpenAI(base_url=\"{base}/v1\", api_key=\"none\")\
         .chat.completions.create(model=\"{MODEL}\", \
         messages=[{{\"role\": \"user\", \"content\": \"What is a tide?\"}}]).choices[0].message.content)'"
    )
}

fn status(admin: &str) -> String {
    format!("{admin}/")
}
