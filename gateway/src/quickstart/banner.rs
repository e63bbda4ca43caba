//! The lines that a person pastes to try a running quickstart. Only text.

use super::MODEL;

/// Three lines to paste, each under a title: a chat with curl, one with OpenAI's SDK for Python, and the status page.
/// `base` and `admin` are URLs without a trailing slash, `http://127.0.0.1:8080` and `http://127.0.0.1:8081`.
pub fn banner(base: &str, admin: &str) -> String {
    let lines = [
        ("With curl:", curl(base)),
        ("With OpenAI's SDK for Python (pip install openai):", sdk(base)),
        ("The status page, in a browser:", status(admin)),
    ];
    lines.map(|(title, line)| format!("{title}\n{line}\n")).join("\n")
}

pub(super) fn curl(base: &str) -> String {
    format!(
        "curl -s {base}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is a tide?\"}}]}}'"
    )
}

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
