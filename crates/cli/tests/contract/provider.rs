//! One suite for all providers.

mod afar;
mod create;
mod destroy;
mod files;
mod limits;
mod look;
mod sleep;
mod words;

/// Runs each function of the suite, by name, with a bench for one provider.
macro_rules! tests {
    ($make:path: $($module:ident { $($test:ident)* })*) => {$(
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(bench) = crate::bench::Bench::new($make).await {
                        crate::provider::$module::$test(&bench).await;
                    }
                }
            )*
        }
    )*};
}

/// What every provider promises.
macro_rules! promises {
    ($make:path) => {
        tests! { $make:
            create {
                creating_makes_one_running_instance
                creating_again_by_the_same_name_finds_the_same_instance
                creating_at_the_same_time_by_the_same_name_makes_one_instance
                creating_goes_on_where_a_server_was_killed
                another_instance_over_the_same_lease_takes_the_place_of_the_first
                an_instance_that_died_is_followed_by_another_over_the_same_lease
                an_instance_that_died_asleep_is_followed_by_one_that_runs
                an_unusable_data_directory_is_an_error_that_did_nothing
                a_missing_program_is_an_error_that_leaves_nothing_running
                a_full_disk_is_told_as_no_space
            }
            look {
                an_instance_that_never_was_is_gone
                an_instance_whose_processes_were_killed_is_gone
                an_instance_whose_steward_was_killed_runs_on
                an_instance_whose_keeper_was_killed_runs_on_or_is_gone_as_a_whole
                a_list_has_what_lives_and_nothing_else
                a_successor_sees_the_same
                looks_at_the_same_time_do_not_disturb_each_other
                several_ways_into_one_instance_work_at_once
                there_is_no_way_into_what_is_gone
                there_is_no_way_into_what_sleeps
                metrics_are_plausible
                there_are_no_metrics_of_what_is_gone
                what_a_provider_can_is_what_it_says
            }
            sleep {
                a_paused_instance_does_nothing_until_it_is_resumed
                pausing_and_resuming_twice_is_the_same_as_once
                a_shell_goes_on_after_a_pause_in_the_same_process_if_that_is_kept
                what_is_gone_is_neither_paused_nor_resumed
                one_that_paused_is_resumed_by_another
                a_job_that_was_stopped_by_its_user_stays_stopped
            }
            destroy {
                destroying_leaves_nothing_but_files_and_the_journal
                destroying_ends_daemons_that_left_their_session
                destroying_twice_is_the_same_as_once
                what_never_was_is_destroyed_already
                a_paused_instance_is_destroyed
                an_instance_with_stubborn_processes_is_destroyed
                what_a_killed_instance_left_is_destroyed
                destroying_one_leaves_its_neighbour_alone
                a_predecessor_that_is_destroyed_late_does_not_take_its_successor_with_it
            }
            files {
                surroundings_are_usable
                a_workspace_and_its_home_outlive_an_instance
                a_workspace_is_shared_by_its_leases_and_by_no_others
                files_inside_are_where_the_trees_say
                forgetting_removes_what_was_kept_and_is_refused_while_it_lives
                forgetting_a_lease_leaves_the_workspace_to_others
                forgetting_what_died_leaves_nothing_behind
            }
            words {
                the_journal_tells_what_ran_after_everything_was_killed
                the_journal_is_not_read_while_somebody_writes_it_but_a_copy_of_it_is
                there_are_no_words_of_what_never_was
            }
        }
    };
}

/// What is to be said beside that of sandboxes that are somewhere else.
macro_rules! promises_afar {
    ($make:path) => {
        tests! { $make:
            afar {
                an_instance_is_told_what_it_can
                another_instance_takes_the_place_of_the_first_with_its_files
                files_come_here_and_go_there
                what_was_written_here_while_it_slept_is_there_when_it_wakes
                a_sandbox_that_is_lost_has_left_its_journal_and_its_files
                a_sandbox_whose_steward_and_keeper_were_killed_gets_others
                what_was_made_and_not_prepared_is_prepared_by_another_server
                what_a_cloud_has_not_missed_yet_is_forgotten_there_too
                hostile_names_and_links_lead_nowhere
                many_files_and_large_ones_are_the_same_on_both_sides
            }
        }
    };
}

macro_rules! suite {
    ($($provider:ident: $make:path;)*) => {$(
        mod $provider {
            promises! { $make }
        }
    )*};
}

macro_rules! suite_afar {
    ($($provider:ident: $make:path;)*) => {$(
        mod $provider {
            promises! { $make }
            promises_afar! { $make }
        }
    )*};
}

suite! {
    local: crate::bench::local;
    namespace: crate::bench::namespace;
    docker: crate::bench::docker;
    podman: crate::bench::podman;
    fake: crate::bench::fake;
}

suite_afar! {
    far: crate::sky::far;
    daytona: crate::sky::daytona;
    e2b: crate::sky::e2b;
    agentbay: crate::sky::agentbay;
}
