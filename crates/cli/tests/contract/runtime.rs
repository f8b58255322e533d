//! One suite for all runtimes: a shell that lives, here or in a cloud behind whatever lies between, and one that is made
//! anew for each command and doesn't let on.

mod ends;
mod isolation;
mod output;
mod queue;
mod state;

use crate::bench::{Bench, Make, Shell, fresh, open};
use std::path::PathBuf;
use stead_model::proto::FaultCode;
use stead_model::state::ShellState;
use stead_server::provider::Handle;
use stead_server::runtime::{Opening, RuntimeError};

/// An instance for shells to be on.
pub(crate) struct Ground {
    pub(crate) bench: Bench,
    handle: Handle,
}

impl Ground {
    pub(crate) async fn new(make: Make) -> Option<Self> {
        let bench = Bench::new(make).await?;
        let handle = bench.instance("ground").await;
        std::fs::create_dir(bench.path().join("scratch")).unwrap();
        Some(Self { bench, handle })
    }

    pub(crate) fn opening(&self, shell: &str) -> Opening {
        let mut opening = fresh(&*self.bench.provider, &self.handle, shell);
        if !self.bench.provider.capabilities().isolated {
            opening.surroundings.scratch = self.bench.path().join("scratch").display().to_string();
        }
        opening
    }

    pub(crate) async fn shell(&self, shell: &str) -> Shell {
        self.open(&self.opening(shell)).await
    }

    pub(crate) async fn open(&self, opening: &Opening) -> Shell {
        Shell::new(open(&*self.bench.provider, &self.handle, opening).await.unwrap(), opening)
    }

    pub(crate) async fn with(&self, shell: &str, state: &ShellState, version: u64) -> Shell {
        self.open(&Opening { state: state.clone(), version, ..self.opening(shell) }).await
    }

    /// The workspace as the shell knows it.
    pub(crate) fn cwd(&self) -> String {
        String::from_utf8(self.bench.provider.surroundings("ground").cwd).unwrap()
    }

    /// A file of the workspace, for whoever looks from outside.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.bench.inside(&self.handle, name)
    }

    /// Whether the shell is a process that lives between commands.
    pub(crate) fn lives(&self) -> bool {
        self.bench.lives()
    }
}

/// The code with which something was refused.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, RuntimeError>) -> FaultCode {
    match answer {
        Err(RuntimeError::Refused(fault)) => fault.code,
        other => panic!("not refused: {other:?}"),
    }
}

macro_rules! tests {
    ($make:path: $($module:ident { $($test:ident)* })*) => {$(
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(ground) = crate::runtime::Ground::new($make).await {
                        crate::runtime::$module::$test(&ground).await;
                    }
                }
            )*
        }
    )*};
}

macro_rules! suite {
    ($($kind:ident: $make:path;)*) => {$(
        mod $kind {
            tests! { $make:
                state {
                    what_a_command_sets_is_there_for_the_next
                    what_a_command_unsets_is_gone_for_the_next
                    the_status_of_a_command_is_there_for_the_next
                    the_version_grows_by_one_with_each_command
                    a_change_of_state_is_told_and_its_absence_too
                    a_captured_state_opens_an_equal_shell
                    another_state_can_be_set
                    a_state_is_not_set_backwards_or_under_a_command
                    a_directory_that_is_gone_is_told_and_its_parent_taken
                    a_directory_for_one_command_does_not_stick
                    variables_for_one_command_do_not_stick
                    a_missing_directory_for_one_command_fails_it
                    names_that_are_none_are_refused
                }
                output {
                    output_and_errors_are_apart_and_exact
                    five_megabytes_come_through
                    what_looks_like_our_own_words_is_output
                    the_input_given_is_read_and_without_one_it_is_empty
                    input_that_nobody_reads_does_no_harm
                    here_documents_and_strange_text_run_as_they_are
                    a_trace_shows_the_command_and_nothing_of_ours
                }
                ends {
                    leaving_the_shell_keeps_what_was_set_before
                    an_error_in_the_text_is_the_commands_own
                    a_shell_that_is_replaced_or_killed_comes_back_as_it_was
                    a_shell_that_ends_at_the_first_error_comes_back_without_that
                    a_timeout_ends_the_command_and_keeps_the_state_before_it
                    a_timeout_ends_what_ignores_it
                    a_running_command_is_cancelled
                    a_waiting_command_is_cancelled_before_it_runs
                    a_command_that_ended_is_not_cancelled
                    a_command_that_nobody_knows_is_not_cancelled
                }
                queue {
                    commands_asked_for_together_run_one_after_the_other
                    a_command_that_does_not_want_to_wait_is_refused
                    the_same_command_is_run_once
                    another_text_under_the_same_name_is_refused
                    what_became_of_a_command_can_be_looked_up
                    children_in_the_background_do_not_hold_up_the_end
                    a_shell_that_rests_knows_what_it_knew
                    a_busy_shell_says_so_and_does_not_rest
                    writing_to_a_running_command_works_or_is_refused
                    a_caller_that_goes_away_leaves_the_shell_usable
                    a_text_with_a_nul_is_refused
                }
                isolation {
                    environments_are_apart
                    directories_are_apart
                    functions_and_aliases_are_apart
                    processes_are_shared
                    files_are_shared
                    commands_of_two_shells_run_at_the_same_time
                    commands_fired_together_get_their_own_output
                    a_shell_that_exits_is_not_noticed_by_another
                    a_shell_by_another_name_knows_nothing
                }
            }
        }
    )*};
}

suite! {
    live: crate::bench::local;
    wrapped: crate::bench::fake;
    daytona: crate::sky::daytona;
    e2b: crate::sky::e2b;
    agentbay: crate::sky::agentbay;
}
