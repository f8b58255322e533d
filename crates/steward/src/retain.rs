//! Making room: the oldest finished commands go first, whatever shell they belong to; one that runs, or whose
//! background children may still write, never does.

use crate::host::Host;
use crate::journal::Need;
use crate::shell::Shell;
use std::collections::{BTreeMap, HashMap};
use stead_model::ids::CommandId;
use stead_model::record::Record;

/// Removes output until the journals are within their limits.
pub(crate) fn enforce(host: &Host, shells: &mut BTreeMap<u32, Shell>, ids: &mut HashMap<CommandId, (u32, u64)>) {
    for shell in shells.values_mut() {
        while shell.commands.len() > host.settings.command_limit && forget_oldest(shell, ids) {}
    }
    let mut total: u64 = shells.values().map(Shell::journal_bytes).sum();
    while total > host.settings.journal_limit {
        let oldest = shells.values().filter_map(|shell| Some((shell.oldest_output()?, shell.key))).min();
        let Some(((_, number), key)) = oldest else { return };
        let Some(shell) = shells.get_mut(&key) else { return };
        let before = shell.journal_bytes();
        if !evict(shell, number) {
            return;
        }
        total = total.saturating_sub(before.saturating_sub(shell.journal_bytes()));
    }
}

/// Removes the output of what was accepted before a moment and has ended.
pub(crate) fn make_room(shells: &mut BTreeMap<u32, Shell>, before: u64) {
    for shell in shells.values_mut() {
        while let Some((accepted_at, number)) = shell.oldest_output() {
            if accepted_at >= before || !evict(shell, number) {
                break;
            }
        }
    }
}

fn evict(shell: &mut Shell, number: u64) -> bool {
    // Noted first: a record without its files is the truth, files without their record would come back.
    let noted = shell.journal.append(&[&Record::Evicted(number)], Need::Last).map(|_| ());
    match noted.and_then(|()| shell.journal.remove_streams(number)) {
        Ok(()) => {
            shell.forget_output(number);
            true
        }
        Err(error) => {
            note!("steward: shell {}: can't make room: {error}", shell.open.shell);
            false
        }
    }
}

/// Forgets the oldest command altogether, and the log files that told of nothing younger.
fn forget_oldest(shell: &mut Shell, ids: &mut HashMap<CommandId, (u32, u64)>) -> bool {
    let Some((&number, entry)) = shell.commands.first_key_value() else { return false };
    if entry.ended.is_none() || !entry.drained || shell.is_followed(number) || (!entry.evicted && !evict(shell, number))
    {
        return false;
    }
    if let Some(entry) = shell.commands.remove(&number) {
        ids.remove(&entry.id);
    }
    let oldest = shell.commands.first_key_value().map_or(number + 1, |(number, _)| *number);
    if let Err(error) = shell.journal.forget_before(oldest) {
        note!("steward: shell {}: {error}", shell.open.shell);
        return false;
    }
    true
}
