//! Terminal agents, the real ones, against a model of our own. Without network: the model is on the loopback interface.
//!
//! What is tested of whom. Over lines: Codex and Claude Code (`jsonl`), Gemini CLI, Auggie and opencode (`acp`), each test
//! with each of them. On a terminal (`pty`): Codex and Claude Code, and a small program of our own.
//!
//! | what                               | over lines                      | on a terminal (`routes`)          | ours (`toy`)            |
//! |------------------------------------|---------------------------------|-----------------------------------|-------------------------|
//! | two turns, what was said is known  | `turns::a_second_message_knows` | `a_second_message_knows`          | `it_answers`            |
//! | told before its end                | `turns::an_answer_is_told`      | `lines_are_told`                  | `its_answer_is_told`    |
//! | markdown as it was written         | `turns::markdown_stays`         | `a_second_message_knows`          | no: a screen is all     |
//! | tool; asked, allowed, denied       | `permissions`                   | `a_tool_is_asked_about`           | `it_is_answered`        |
//! | abort                              | `turns::a_turn_can_be_aborted`  | `a_turn_is_aborted`               | `its_turn_is_aborted`   |
//! | reset, all or nothing              | `busy::a_reset_is`              | `its_session_is_another`          | `a_reset_of`            |
//! | paths that begin alike             | `busy::a_reset_is`              | no: keys know nothing of routes   | `a_reset_of`            |
//! | another agent, another session     | `busy::two_agents`              | `its_session_is_another`          | no: alone               |
//! | clean-up: unused, not in use       | `durable::an_unused_agent`      | `one_that_is_unused`              | `it_is_ended`           |
//! | hang up, hear it again             | `durable::a_client_that_leaves` | `lines_are_told`                  | `its_answer_is_told`    |
//! | `kill -9` of the server in a turn  | `durable::a_turn_goes_on`       | `a_turn_goes_on`                  | `its_turn_goes_on`      |
//! | `kill -9` of the agent in a turn   | `durable::after_the_agent_died` | `after_the_agent_died`            | `it_outlives`           |
//! | it hangs                           | `trouble::a_turn_in_which`      | `a_turn_in_which`                 | `a_screen_that_only`    |
//! | it floods                          | `trouble::a_flood`              | `a_flood`                         | `an_answer_that_its`    |
//! | its model can't be reached         | `trouble::a_model_that_can_not` | `a_model_that_can_not`            | no: it has none         |
//!
//! Auggie asks nothing before it uses a tool, nor does Codex on a terminal, where it asks only about what its own sandbox
//! forbids: their tests see that this is still so. Gemini CLI can't go on with a conversation in another process, and our
//! program remembers nothing: both say so (`resumed`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    dead_code,
    reason = "helpers fail the test they are called from, as tests themselves do; the rig has more than is used here"
)]

mod bench;
mod busy;
mod cli;
mod durable;
mod lasting;
mod model;
mod permissions;
mod person;
mod policy;
mod polly;
#[path = "../http/rig.rs"]
mod rig;
mod routes;
mod sandbox;
mod scene;
mod screens;
mod toy;
mod trouble;
mod turns;
