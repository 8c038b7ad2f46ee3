//! Where a choice ends: the only place.

use crate::{
    TokenId,
    report::FinishReason,
    request::Request,
    sample::Semantics,
    text::{TextError, TextStream, Tokenizer},
};

/// What a token did to the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Text that is certain now: no later token changes it and no stop text begins in it.
    pub text: String,
    /// Set if this token is the last.
    pub reason: Option<FinishReason>,
}

/// The stop conditions of one choice and its text so far.
///
/// Text is held back while it may still turn out to begin a stop text, so what was handed out is
/// never taken back: the pieces, joined, are the final text.
///
/// Under [`Semantics::Host`] a choice ends as in mistral.rs 0.8.1 (`Sequence::is_done` in
/// `src/sequence.rs` of mistralrs-core), which looks for stop texts before it has added the token: the
/// token *after* the one that completed a stop text ends the choice, is counted, and is not part of the
/// text. If that token is an end token or the last allowed one, this is the reason and nothing is cut.
/// Of several stop texts complete at once the first in the request's order is cut.
#[derive(Debug)]
pub struct Ending {
    end_ids: Vec<TokenId>,
    stops: Vec<String>,
    min_tokens: usize,
    limit: usize,
    count: usize,
    stream: Option<TextStream>,
    text: String,
    /// What would follow `text` if this token were the last; kept only for stop texts.
    pending: String,
    sent: usize,
    open: bool,
    semantics: Semantics,
    /// Where a stop text begins that the last token completed and the next may cut.
    found: Option<usize>,
}

impl Ending {
    /// The conditions of `request`: `end_ids` are the tokens that end it (see [`end_ids`]), `limit`
    /// is the most tokens that it and the target's context allow together. Without a tokenizer
    /// there is no text and no stop text.
    #[must_use]
    pub fn new(
        request: &Request,
        end_ids: Vec<TokenId>,
        limit: usize,
        text: Option<&Tokenizer>,
    ) -> Self {
        Self {
            end_ids,
            stops: request.stop.clone(),
            min_tokens: request.params.min_tokens,
            limit,
            count: 0,
            stream: text.map(Tokenizer::stream),
            text: String::new(),
            pending: String::new(),
            sent: 0,
            open: true,
            semantics: request.params.semantics,
            found: None,
        }
    }

    /// Tokens that may still be delivered.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.limit - self.count
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// If the tokenizer cannot decode it.
    pub fn push(&mut self, token: TokenId) -> Result<Pushed, TextError> {
        self.count += 1;
        if self.end_ids.contains(&token) {
            return self.end(FinishReason::Stop);
        }
        match self.semantics {
            Semantics::Eyrie => self.push_open(token),
            Semantics::Host => self.push_late(token),
        }
    }

    /// Takes a token that is no end token.
    fn push_open(&mut self, token: TokenId) -> Result<Pushed, TextError> {
        if let Some(at) = self.append(token)? {
            return self.cut(at);
        }
        if self.count == self.limit {
            return self.end(FinishReason::Length);
        }
        Ok(self.go_on())
    }

    /// The same as the host does it.
    fn push_late(&mut self, token: TokenId) -> Result<Pushed, TextError> {
        let last = self.count == self.limit;
        if let Some(at) = self.found.filter(|_| !last) {
            return self.cut(at);
        }
        self.found = self.append(token)?;
        if last {
            return self.end(FinishReason::Length);
        }
        Ok(self.go_on())
    }

    /// The text that was held back; nothing follows it. Empty when called again.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the last tokens.
    pub fn rest(&mut self) -> Result<String, TextError> {
        let open = std::mem::take(&mut self.open);
        if let (true, Some(stream)) = (open, &mut self.stream) {
            self.text.push_str(&stream.finish()?);
        }
        let rest = self.text[self.sent..].to_owned();
        self.sent = self.text.len();
        Ok(rest)
    }

    /// The text so far, what is held back included; none without a tokenizer.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.stream.is_some().then_some(self.text.as_str())
    }

    fn end(&mut self, reason: FinishReason) -> Result<Pushed, TextError> {
        Ok(Pushed {
            text: self.rest()?,
            reason: Some(reason),
        })
    }

    fn go_on(&mut self) -> Pushed {
        Pushed {
            text: self.certain(),
            reason: None,
        }
    }

    /// Ends it at the stop text that begins at byte `at`.
    fn cut(&mut self, at: usize) -> Result<Pushed, TextError> {
        self.text.push_str(&self.pending);
        self.text.truncate(at);
        self.open = false;
        self.end(FinishReason::Stop)
    }

    /// Adds the text of a token. Where a stop text begins that it completed, if that may end the choice:
    /// a byte of the text with `pending` behind it. A token whose own text later ones could change (a
    /// byte token) completes one too: if it is the last, they do not come.
    fn append(&mut self, token: TokenId) -> Result<Option<usize>, TextError> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let from = self.text.len();
        self.text.push_str(&stream.push(token)?);
        if self.stops.is_empty() {
            return Ok(None);
        }
        let pending = stream.pending()?;
        let certain = self.text.len();
        self.text.push_str(&pending);
        let known = std::mem::replace(&mut self.pending, pending);
        let both = self.text[from..].chars().zip(known.chars());
        let seen = both.take_while(|(now, before)| now == before);
        let from = from + seen.map(|(now, _)| now.len_utf8()).sum::<usize>();
        let at = self.stop_ending_after(from);
        self.text.truncate(certain);
        Ok(at.filter(|_| self.count > self.min_tokens))
    }

    /// Where a stop text begins among those that end after byte `from`: the earliest, or the first in
    /// order.
    fn stop_ending_after(&self, from: usize) -> Option<usize> {
        let begins = |stop: &String| {
            let first = (from + 1).saturating_sub(stop.len());
            let start = (first..).find(|at| self.text.is_char_boundary(*at))?;
            Some(start + self.text[start..].find(stop.as_str())?)
        };
        let mut found = self.stops.iter().filter_map(begins);
        match self.semantics {
            Semantics::Eyrie => found.min(),
            Semantics::Host => found.next(),
        }
    }

    /// The text that no stop text can still begin in, from where the last piece ended.
    fn certain(&mut self) -> String {
        let held = |stop: &String| {
            let longest = stop
                .len()
                .saturating_sub(1)
                .min(self.text.len() - self.sent);
            (1..=longest)
                .rev()
                .find(|n| stop.is_char_boundary(*n) && self.text.ends_with(&stop[..*n]))
                .unwrap_or(0)
        };
        let held = self.stops.iter().map(held).max().unwrap_or(0);
        let upto = (self.text.len() - held).min(self.found.unwrap_or(usize::MAX));
        let piece = self.text[self.sent..upto].to_owned();
        self.sent = upto;
        piece
    }
}

/// The tokens that end `request`: the target's, unless ignored, and its own.
#[must_use]
pub fn end_ids(request: &Request, eos: &[TokenId]) -> Vec<TokenId> {
    let eos = if request.ignore_eos { &[] } else { eos };
    let mut ids = [eos, &request.stop_ids].concat();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests;
