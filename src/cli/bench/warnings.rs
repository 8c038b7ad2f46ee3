//! What a reader of the numbers must know, in words.

use super::{arms::Arms, plan::Plan, prompts};

/// Fewer repeats give an interval that says little.
const FEW: usize = 3;

/// Fewer conversations are a sample of themselves.
const FEW_TEXTS: usize = 8;

/// A number of things: `1 repeat`, `2 repeats`.
pub(super) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// The warnings of a benchmark, those of its files first.
pub(super) fn of(
    plan: &Plan,
    arms: &Arms,
    conversations: &[prompts::Conversation],
    chat: bool,
) -> Vec<String> {
    let mut all = arms.warnings.clone();
    let ids = prompts::ids(conversations);
    let texts = conversations.len() - ids;
    match &arms.opened.chat {
        Some(template) if texts > 0 && !chat => all.push(format!(
            "raw prompts: the model has a chat template ({}) and was trained on it; what is accepted \
             without it is another number",
            template.name()
        )),
        None if texts > 0 => all.push(
            "the model has no chat template: prompts are taken as they are; if it was trained as a chat \
             model, what is accepted is another number"
                .to_owned(),
        ),
        _ => {}
    }
    if ids > 0 {
        all.push(format!(
            "{ids} of {} given as token ids: if they are random, speed and acceptance are not those of text",
            count(conversations.len(), "prompt")
        ));
    }
    if cfg!(debug_assertions) {
        all.push(
            "this is a build with debug assertions: its times are no evidence; build with --release"
                .to_owned(),
        );
    }
    if plan.ignore_eos {
        all.push(
            "ignore_eos: answers go on after their end, where text repeats itself; speed and acceptance \
             are not those of answers"
                .to_owned(),
        );
    }
    if plan.warm_up == 0 {
        all.push("warm-up 0: the first repeat pays for cold caches and memory".to_owned());
    }
    if plan.repeats < FEW {
        all.push(format!(
            "{}: an interval needs at least 2 and says little with less than {FEW}",
            count(plan.repeats, "repeat")
        ));
    }
    let asked = conversations.len();
    let there = count(asked, "conversation");
    if asked < FEW_TEXTS {
        all.push(format!(
            "{there}: an interval tells how steady the times of these are, not what other texts give; \
             ask at least {FEW_TEXTS}"
        ));
    }
    if plan.warm_up > asked {
        all.push(format!(
            "--warm-up {}: only {there} to answer first",
            plan.warm_up
        ));
    }
    for concurrency in plan.concurrency.iter().filter(|n| **n > asked) {
        all.push(format!(
            "--concurrency {concurrency}: only {there} to have at once"
        ));
    }
    all
}
