//! The names that the outside sees: headers and Prometheus metrics, each written once.

/// Header names (H5, R1, Q2). All lower case, as HTTP/2 wants them.
pub mod header {
    /// Identifies a request; taken from the client or made.
    pub const REQUEST_ID: &str = "x-request-id";
    /// The replica that answered, by its public name.
    pub const REPLICA: &str = "x-tidegate-replica";
    /// How the request came to it, see [`crate::request::Route`].
    pub const ROUTE: &str = "x-tidegate-route";
    /// Milliseconds after which a refused client should come again; read by the OpenAI SDKs.
    pub const RETRY_AFTER_MS: &str = "retry-after-ms";
    /// How often a client has tried this request before; sent by the OpenAI SDKs.
    pub const RETRY_COUNT: &str = "x-stainless-retry-count";
    /// How urgent a request is, see [`crate::request::Priority`]; from the client.
    pub const PRIORITY: &str = "x-tidegate-priority";
    /// Milliseconds within which a request must have been sent to a replica, or not at all; from the client.
    pub const START_WITHIN_MS: &str = "x-tidegate-start-within-ms";
    /// Milliseconds after which an Envoy in front gives up on a request.
    pub const ENVOY_TIMEOUT_MS: &str = "x-envoy-expected-rq-timeout-ms";
    /// Seconds after which a client that hears nothing gives up; sent by the SDKs of OpenAI and Anthropic.
    pub const SDK_TIMEOUTS: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];
    /// Seconds of silence after which a client that waits for a stream wants a comment (Q3).
    pub const KEEPALIVE: &str = "x-tidegate-keepalive";
    /// Headers that name a conversation, in order of precedence (R1).
    pub const CONVERSATION: [&str; 2] = ["x-conversation-id", "x-session-id"];
}

/// Prometheus metrics. `tidegate_` leads; units are base units; counters end in `_total`.
pub mod metric {
    /// A metric: name, kind and help text.
    #[derive(Clone, Copy, Debug)]
    pub struct Metric {
        /// Its name.
        pub name: &'static str,
        /// Its kind.
        pub kind: Kind,
        /// One sentence on what it counts and which labels it has.
        pub help: &'static str,
    }

    /// Kinds of metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// Only grows.
        Counter,
        /// Goes up and down.
        Gauge,
        /// A distribution.
        Histogram,
    }

    macro_rules! table {
        ($($id:ident $kind:ident $name:literal $help:literal)*) => {
            $(#[doc = $help] pub const $id: &str = $name;)*
            /// Every metric that Tidegate exports.
            pub const ALL: &[Metric] = &[$(Metric { name: $name, kind: Kind::$kind, help: $help }),*];
        };
    }

    table! {
        REQUESTS Counter "tidegate_requests_total" "Requests answered, by deployment, endpoint, status (499: the client left; other: a replica sent one of 600 or more) and outcome (complete: the answer of a replica came to its end, failed_midway: it broke off or reported an error after it had begun, whatever its status; empty where no replica's answer ended)."
        REQUEST_SECONDS Histogram "tidegate_request_duration_seconds" "Time from the request's head to the last byte of its answer, by deployment."
        TTFT_SECONDS Histogram "tidegate_time_to_first_byte_seconds" "Time from the request's head to the first byte of the replica's body, by deployment."
        QUEUE_SECONDS Histogram "tidegate_queue_wait_seconds" "Time that requests spent in the queue, by deployment; those that never queued are not counted."
        ROUTES Counter "tidegate_routes_total" "Requests sent to a replica, by deployment and route (home, placed, detour, rehomed, any)."
        REFUSALS Counter "tidegate_refusals_total" "Requests refused with 503, by deployment and reason."
        RETRIES Counter "tidegate_retries_total" "Requests sent again, to any replica, because no byte of an answer came, by deployment."
        RETRIES_REFUSED Counter "tidegate_retry_budget_exhausted_total" "Failed requests that were not sent again because too many were, by deployment."
        UPSTREAM_ERRORS Counter "tidegate_upstream_errors_total" "Requests that a replica failed, answers of 5xx among them, by deployment and replica."
        EJECTIONS Counter "tidegate_ejections_total" "Replicas taken out for a while because of how they answered, by deployment and reason (connect, broken, silent, status, midway)."
        SIGNAL_ERRORS Counter "tidegate_signal_errors_total" "Figures of engines that cannot be true and pages that cannot be read, by deployment and replica."
        PROMPT_TOKENS Counter "tidegate_prompt_tokens_total" "Prompt tokens as returned in usage, by deployment."
        CACHED_TOKENS Counter "tidegate_cached_prompt_tokens_total" "Prompt tokens that a replica found in its cache as returned in usage, by deployment."
        OUTPUT_TOKENS Counter "tidegate_completion_tokens_total" "Completion tokens as returned in usage, by deployment."
        IN_FLIGHT Gauge "tidegate_in_flight" "Requests that a replica works on, by deployment and replica."
        QUEUED Gauge "tidegate_queue_depth" "Requests in the queue, by deployment."
        REPLICAS Gauge "tidegate_replicas" "Replicas by deployment and phase."
        TARGET Gauge "tidegate_replicas_target" "Replicas that the planner wants, by deployment."
        GROWTH_BLOCKED Gauge "tidegate_growth_blocked" "Whether a fleet cannot grow for this reason, by the newest decision: 1 or 0, several at a time, by deployment and reason (at_max, price_cap, no_capacity, no_fit, no_credit, gateway_cap, backing_off, provider_error, provider_holds)."
        SPEND Gauge "tidegate_spend_dollars_per_hour" "What a fleet costs for each hour as it is now, by deployment; while its provider does not answer, as it told last, and absent until it has."
        SPEND_MOST Gauge "tidegate_spend_most_dollars_per_hour" "What a fleet can cost for each hour at most, by deployment; absent without a price cap."
        CREDIT Gauge "tidegate_credit_dollars" "Credit that is left over all deployments; absent where none is counted."
        DECISIONS Counter "tidegate_scaling_decisions_total" "Evaluations that changed the target or its reason, by deployment and reason."
        CONVERSATIONS Gauge "tidegate_conversations" "Conversations with a home, by deployment."
        STARTS Counter "tidegate_replica_starts_total" "Starts of replicas, by deployment and result (ready, failed; woken, not_woken of parked ones)."
        BUFFERED_BYTES Gauge "tidegate_buffered_body_bytes" "Bytes of request bodies held in memory."
        GAVE_UP Counter "tidegate_clients_given_up_total" "Connections or streams of clients that were ended because of the client, by reason (idle: nothing of a request came, head: a request's head was not whole in time, answer: too little of an answer was taken, ping: a ping over HTTP/2 was not answered, flood: too many frames over HTTP/2 brought nothing, heads: those over HTTP/2, of a connection or of all, were too large together)."
        TLS_FAILURES Counter "tidegate_tls_handshake_failures_total" "TLS handshakes of clients that failed, by reason (clear: what came was no TLS, slow: not done in time, left: the client closed, certificate: the client's was missing or not to be trusted, refused: the client sent an alert, protocol: nothing in common)."
        TLS_EXPIRES Gauge "tidegate_tls_certificate_expires_timestamp_seconds" "When the certificate that clients are shown expires, in seconds of Unix time."
        PANICS Counter "tidegate_panics_total" "Handlers that panicked; each is a bug."
    }
}
