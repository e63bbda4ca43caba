//! One engine: continuous batching with chunked prefill, a first-come-first-served queue, and a prefix cache.
//!
//! Decides when each request starts, when each of its tokens appears, and what it finds in the cache. Never
//! preempts: a request starts only when the KV space of its whole prompt and answer can be reserved, so
//! nothing that runs can run out of room. Nobody overtakes the head of the queue.
//!
//! Time goes in steps. A step computes one token for each sequence that is decoding and up to
//! [`PREFILL_CHUNK`] prompt tokens for those that are not, oldest first. Who arrives during a step is
//! looked at when it ends. [`Engine::next_event`] says when there will be something to see; calling
//! [`Engine::advance`] later than that changes nothing but when it is seen.

mod blocks;
mod request;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use tidegate_shared::time::Instant;

use self::blocks::{Blocks, Hold};
pub use self::request::{Event, Finish, Id, Refusal, Request, Totals};
pub use self::settings::{BLOCK_TOKENS, PREFILL_CHUNK, Settings};

#[derive(Debug)]
struct Sequence {
    request: Request,
    hold: Hold,
    cached: u32,
    /// Tokens whose KV is computed: cached, prefilled or decoded.
    computed: u32,
    /// Tokens of output that appeared.
    output: u32,
    /// Prompt tokens that the step under way computes.
    planned: u32,
    /// Whether it takes part in the step under way.
    stepping: bool,
}

impl Sequence {
    /// What one step does to it; true when a token of output appeared.
    fn step(&mut self) -> bool {
        // The token sampled last is fed in now, so a decode step computes the KV of one more token.
        self.computed += if self.output > 0 { 1 } else { self.planned };
        let appeared = self.computed >= self.request.prompt() && self.output < self.request.output();
        self.output += u32::from(appeared);
        appeared
    }

    fn is_done(&self) -> bool {
        self.computed >= self.request.prompt() && self.output >= self.request.output()
    }
}

/// The engine. Inputs carry `now`; time never goes back (an earlier `now` counts as the latest one seen).
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    blocks: Blocks,
    waiting: VecDeque<Request>,
    running: Vec<Sequence>,
    /// Events that happened and were not yet handed out.
    events: Vec<Event>,
    /// End of the step under way.
    step_ends: Option<Instant>,
    /// No step begins earlier.
    idle_until: Instant,
    now: Instant,
    totals: Totals,
}

impl Engine {
    /// An engine born at `now`; it takes requests at once and begins with them when it has loaded.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            blocks: Blocks::new(settings.blocks()),
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            step_ends: None,
            idle_until: now + settings.load_time,
            now,
            totals: Totals::default(),
            settings,
        }
    }

    /// Takes a request in.
    ///
    /// # Errors
    /// [`Refusal::TooLong`] when it could never run, [`Refusal::QueueFull`] when `settings.queue` requests wait
    /// beyond the free slots.
    pub fn arrive(&mut self, now: Instant, request: Request) -> Result<(), Refusal> {
        self.catch_up(now);
        let allowed = self.settings.max_length.min(self.settings.blocks().saturating_mul(BLOCK_TOKENS));
        let tokens = request.length();
        if tokens > u64::from(allowed) {
            return Err(Refusal::TooLong { tokens, allowed });
        }
        let free = self.slots().saturating_sub(self.running.len());
        let bound = self.settings.queue.map_or(usize::MAX, |queue| free.saturating_add(queue as usize));
        if self.waiting.len() >= bound {
            return Err(Refusal::QueueFull { waiting: self.waiting() });
        }
        if self.step_ends.is_none() && self.waiting.is_empty() {
            self.idle_until = self.idle_until.max(self.now);
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Forgets a request, queued or running: everything it holds is free at once, and no event of it follows.
    /// False when the engine does not know it (any more).
    pub fn cancel(&mut self, now: Instant, id: Id) -> bool {
        self.catch_up(now);
        let events = self.events.len();
        self.events.retain(|event| event.id() != id);
        if let Some(at) = self.waiting.iter().position(|request| request.id == id) {
            self.waiting.remove(at);
            return true;
        }
        if let Some(at) = self.running.iter().position(|sequence| sequence.request.id == id) {
            let sequence = self.running.remove(at);
            self.blocks.release(sequence.hold);
            return true;
        }
        self.events.len() != events
    }

    /// Forgets the prefix cache, as an engine that sleeps does; not while a request holds some of it.
    pub fn forget(&mut self) {
        if self.running.is_empty() {
            self.blocks = Blocks::new(self.settings.blocks());
        }
    }

    /// When [`Engine::advance`] will have something to do; [`Instant::NEVER`] when nothing is there.
    pub fn next_event(&self) -> Instant {
        if !self.events.is_empty() {
            return self.now;
        }
        match self.step_ends {
            Some(end) => end,
            None if self.waiting.is_empty() => Instant::NEVER,
            None => self.idle_until.max(self.now),
        }
    }

    /// Lets time pass up to and including `now`; returns what happened, in order.
    pub fn advance(&mut self, now: Instant) -> Vec<Event> {
        self.now = self.now.max(now);
        self.run(|next| next <= now);
        std::mem::take(&mut self.events)
    }

    /// Requests that hold a slot.
    pub fn running(&self) -> u32 {
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// KV tokens that running requests hold or have reserved, in whole blocks.
    pub const fn kv_held(&self) -> u32 {
        self.blocks.held() * BLOCK_TOKENS
    }

    /// KV tokens that only the prefix cache keeps, in whole blocks; given up as soon as a request needs room.
    pub fn kv_cached(&self) -> u32 {
        self.blocks.idle() * BLOCK_TOKENS
    }

    /// Sums since birth.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Its speeds and sizes.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    fn slots(&self) -> usize {
        self.settings.slots.max(1) as usize
    }

    /// Does what happened strictly before `now`, so that an input at `now` meets the state it would have met
    /// had somebody looked all the time, and inputs at one moment all make the same step.
    fn catch_up(&mut self, now: Instant) {
        let now = self.now.max(now);
        self.run(|next| next < now);
        self.now = now;
    }

    fn run(&mut self, due: impl Fn(Instant) -> bool) {
        loop {
            if let Some(end) = self.step_ends {
                if !due(end) {
                    return;
                }
                self.step_ends = None;
                self.idle_until = end;
                self.end_step(end);
            }
            if (self.waiting.is_empty() && self.running.is_empty()) || !due(self.idle_until) {
                return;
            }
            if !self.begin_step(self.idle_until) {
                return;
            }
        }
    }

    /// Fills the slots and starts a step at `at`; false when nothing is there to be stepped.
    fn begin_step(&mut self, at: Instant) -> bool {
        self.admit(at);
        let (mut budget, mut kv, mut sequences) = (PREFILL_CHUNK, 0_u64, 0_u64);
        for sequence in &mut self.running {
            let missing = sequence.request.prompt().saturating_sub(sequence.computed);
            sequence.planned = missing.min(budget);
            sequence.stepping = missing == 0 || sequence.planned > 0;
            if sequence.stepping {
                budget -= sequence.planned;
                sequences += 1;
                kv += u64::from(sequence.computed);
            }
        }
        if sequences == 0 {
            return false;
        }
        let time = self.settings.step_time(sequences, kv, u64::from(PREFILL_CHUNK - budget));
        self.step_ends = Some(at + time);
        true
    }

    fn admit(&mut self, at: Instant) {
        while self.running.len() < self.slots()
            && let Some(request) = self.waiting.front()
        {
            // The last prompt token is always computed: its logits are the first token of the answer.
            let reusable = ((request.prompt() - 1) / BLOCK_TOKENS) as usize;
            let prefix = request.chain.get(..reusable).unwrap_or(&request.chain);
            let total = u32::try_from(request.length().div_ceil(u64::from(BLOCK_TOKENS))).unwrap_or(u32::MAX);
            let Some((hold, hits)) = self.blocks.reserve(prefix, total) else { return };
            let Some(request) = self.waiting.pop_front() else { return };
            let cached = hits * BLOCK_TOKENS;
            self.totals.prompt += u64::from(request.prompt());
            self.totals.cached += u64::from(cached);
            self.events.push(Event::Started { id: request.id, at, cached_tokens: cached });
            let (computed, output, planned, stepping) = (cached, 0, 0, false);
            self.running.push(Sequence { request, hold, cached, computed, output, planned, stepping });
        }
    }

    fn end_step(&mut self, at: Instant) {
        let Self { running, blocks, events, totals, .. } = self;
        running.retain_mut(|sequence| {
            if !std::mem::take(&mut sequence.stepping) {
                return true;
            }
            let appeared = sequence.step();
            let full = (sequence.computed / BLOCK_TOKENS) as usize;
            blocks.offer(&mut sequence.hold, &sequence.request.chain, full);
            let id = sequence.request.id;
            if appeared {
                totals.output += 1;
                events.push(Event::Token { id, at, n: sequence.output });
            }
            if !sequence.is_done() {
                return true;
            }
            blocks.release(std::mem::take(&mut sequence.hold));
            let cut = sequence.request.answer_tokens > sequence.request.max_tokens;
            let reason = if cut { Finish::Length } else { Finish::Stop };
            events.push(Event::Finished { id, at, reason, cached_tokens: sequence.cached });
            false
        });
    }
}
