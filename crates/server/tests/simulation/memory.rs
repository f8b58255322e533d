//! What every terminal must remember: after each answer, which directory and which variables the next command may see.
//!
//! A write that was answered is what the next command sees. One that was not may have happened or not, until somebody
//! looks; from then on it has, or has not.

use crate::op::{Answer, Op, Place, Ran, Text};
use std::collections::{BTreeMap, BTreeSet};
use stead_model::ids::{CommandId, TerminalId};
use stead_model::proto::Status;
use stead_model::state::ShellState;
use stead_model::terminal::Terminal;

/// The directory, or a variable.
type Key = &'static str;
pub(crate) type Values = BTreeMap<Key, String>;

/// What was asked for, what was answered, and the content that a restore was to bring back.
pub(crate) type Told = (Op, Answer, Option<Values>);

pub(crate) const NAMES: [&str; 3] = ["V0", "V1", "V2"];
const CWD: Key = "cwd";

#[derive(Debug, Default)]
pub(crate) struct Memory {
    terminals: BTreeMap<TerminalId, Known>,
    /// Commands that had been carried out before they were asked for again.
    earlier: BTreeSet<(CommandId, TerminalId)>,
}

#[derive(Debug)]
struct Known {
    place: Place,
    /// What each may be.
    may_be: BTreeMap<Key, BTreeSet<String>>,
    /// The version that the last answer named, and the generation last seen.
    version: u64,
    generation: u64,
    stored: u64,
    /// What was seen at a version.
    history: BTreeMap<u64, Values>,
}

/// What an answer says about a terminal.
struct Sight {
    command: Option<CommandId>,
    version: u64,
    values: Values,
    /// Of them, those that it made so itself.
    own: BTreeSet<Key>,
}

pub(crate) fn values(state: &ShellState) -> Values {
    let cwd = if state.cwd.is_empty() { "/workspace".to_owned() } else { String::from_utf8_lossy(&state.cwd).into() };
    let mut values = Values::from([(CWD, cwd)]);
    for name in NAMES {
        let statement = state.variables.get(name.as_bytes()).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let value = statement.and_then(|text| text.split_once('=').map(|(_, value)| value.to_owned()));
        values.insert(name, value.unwrap_or_default());
    }
    values
}

fn sight(ran: &Ran, text: &Text) -> Sight {
    let mut values = Values::from([(CWD, ran.cwd.clone())]);
    let mut own = BTreeSet::new();
    match text {
        Text::Cd(_) => {
            own.insert(CWD);
        }
        Text::Export(name, value) => {
            values.insert(name, value.clone());
            own.insert(*name);
        }
        // Of a command that somebody else had run, the output may be gone.
        Text::Env if !ran.whole => {}
        Text::Env => {
            for name in NAMES {
                let set = ran.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                values.insert(name, set.unwrap_or_default().to_owned());
            }
        }
        Text::Other(_) => {}
    }
    Sight { command: Some(ran.id.clone()), version: ran.version, values, own }
}

impl Memory {
    /// What is told of this one is told of an earlier time: variables may have been set since, which has no version.
    pub(crate) fn ran_earlier(&mut self, command: &CommandId, terminal: &TerminalId) {
        self.earlier.insert((command.clone(), terminal.clone()));
    }

    /// Learns of terminals that are new, and of those that are gone. `deleted`: threads that somebody tried to delete.
    pub(crate) fn meet(&mut self, rows: &[Terminal], deleted: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in rows {
            let name = if row.name == "build" { "build" } else { "default" };
            let known = self.terminals.entry(row.id.clone()).or_insert_with(|| Known {
                place: Place { thread: row.thread.clone(), name },
                may_be: values(&ShellState::default()).into_iter().map(|(key, value)| (key, [value].into())).collect(),
                version: 0,
                generation: 0,
                stored: 0,
                history: BTreeMap::new(),
            });
            if row.version < known.stored || row.generation < known.generation {
                let was = (known.generation, known.stored);
                wrong.push(format!("{} went back: from {was:?} to {:?}", row.id, (row.generation, row.version)));
            }
            (known.generation, known.stored) = (row.generation, row.version);
        }
        let here: BTreeSet<_> = rows.iter().map(|row| &row.id).collect();
        self.terminals.retain(|id, known| {
            let stays = here.contains(id);
            if !stays && !deleted.contains(known.place.thread.as_str()) {
                wrong.push(format!("terminal {id} of {:?} is gone, and nobody deleted it", known.place));
            }
            stays
        });
        wrong
    }

    /// That a store which must have every answer has it.
    pub(crate) fn behind(&self, rows: &[Terminal]) -> Vec<String> {
        let late = rows.iter().filter_map(|row| {
            let known = self.terminals.get(&row.id)?;
            (row.version < known.version)
                .then(|| format!("{}: {} was answered, {} is stored", row.id, known.version, row.version))
        });
        late.collect()
    }

    /// What the answers of one step say.
    pub(crate) fn hear(&mut self, step: &[Told]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut sights: BTreeMap<TerminalId, Vec<Sight>> = BTreeMap::new();
        let mut unsure: Vec<(Place, Values)> = Vec::new();
        let mut sets: Vec<(&TerminalId, Key, &String)> = Vec::new();
        for (op, answer, content) in step {
            match (op, answer) {
                (Op::Run(_, text, _) | Op::Repeat(_, text, _), Answer::Ran(ran)) if counts(ran) => {
                    // Asked for twice, it is told twice; or told again long after.
                    let told = |other: &Sight| other.command.as_ref() == Some(&ran.id);
                    let known = self.terminals.get(&ran.terminal).is_some_and(|known| ran.version <= known.version);
                    let sights = sights.entry(ran.terminal.clone()).or_default();
                    let old = matches!(op, Op::Repeat(..))
                        && (known || self.earlier.contains(&(ran.id.clone(), ran.terminal.clone())));
                    if !old && !sights.iter().any(told) {
                        sights.push(sight(ran, text));
                    }
                }
                (Op::Run(place, text, _) | Op::Repeat(place, text, _), _) => {
                    let value = match text {
                        Text::Cd(to) => Values::from([(CWD, to.clone())]),
                        Text::Export(name, value) => Values::from([(*name, value.clone())]),
                        Text::Env | Text::Other(_) => Values::new(),
                    };
                    unsure.push((place.clone(), value));
                }
                (Op::Restore(..), Answer::Restored(after)) => {
                    let mut found = values(&after.state);
                    // It is shown with what another server has been asked to set meanwhile.
                    found.retain(|key, value| {
                        let kept = content.as_ref().is_none_or(|content| content.get(key) == Some(&*value));
                        let is_set = |(other, _, _): &Told| {
                            matches!((op, other), (Op::Restore(place, ..), Op::SetEnv(at, name, _)) if place == at && name == key)
                        };
                        kept || !step.iter().any(is_set)
                    });
                    let content = content.as_ref().map(|content| {
                        let kept = content.iter().filter(|(key, _)| found.contains_key(*key));
                        kept.map(|(key, value)| (*key, value.clone())).collect::<Values>()
                    });
                    if content.as_ref().is_some_and(|content| *content != found) {
                        wrong.push(format!("{} was restored to {found:?}, not {content:?}", after.id));
                    }
                    // A command in between may see it already, before it is done for good.
                    if let Op::Restore(place, ..) = op {
                        unsure.push((place.clone(), found.clone()));
                    }
                    let own = found.keys().copied().collect();
                    let sight = Sight { command: None, version: after.version, values: found, own };
                    sights.entry(after.id.clone()).or_default().push(sight);
                }
                (Op::SetEnv(place, name, value), answer) => {
                    unsure.push((place.clone(), Values::from([(*name, value.clone())])));
                    if let Answer::Set(id) = answer {
                        sets.push((id, *name, value));
                    }
                }
                (Op::Restore(place, ..), _) => {
                    unsure.push((place.clone(), content.clone().unwrap_or_default()));
                }
                _ => {}
            }
        }
        for (id, known) in &mut self.terminals {
            let maybe: Vec<&Values> =
                unsure.iter().filter(|(place, _)| *place == known.place).map(|(_, values)| values).collect();
            let seen = sights.remove(id).unwrap_or_default();
            // What was set and answered is so, unless somebody else wrote it at the same time.
            let written = |key: Key| {
                let own = seen.iter().filter(|sight| sight.own.contains(key)).count();
                own + maybe.iter().filter(|values| values.contains_key(key)).count()
            };
            let set: Vec<_> = sets.iter().filter(|(set, key, _)| *set == id && written(key) == 1).collect();
            wrong.extend(known.follow(seen, &maybe).into_iter().map(|what| format!("{id}: {what}")));
            for (_, key, value) in set {
                known.may_be.insert(key, [(*value).clone()].into());
            }
        }
        wrong
    }

    /// Whether what is kept of a terminal's past is what was seen of it.
    pub(crate) fn past(&self, id: &TerminalId, version: u64, content: &Values) -> Option<String> {
        let (_, seen) = self.terminals.get(id)?.history.get_key_value(&version)?;
        let wrong = seen.iter().find(|(key, value)| content.get(*key) != Some(value))?;
        Some(format!("{id}: at version {version} {wrong:?} was seen, and {content:?} is kept"))
    }
}

/// An answer that must be remembered: it says how the command ended, and not that its state could not be kept.
fn counts(ran: &Ran) -> bool {
    ran.status == Status::Exited && ran.warnings.is_empty()
}

impl Known {
    fn follow(&mut self, mut sights: Vec<Sight>, maybe: &[&Values]) -> Vec<String> {
        let mut wrong = Vec::new();
        sights.sort_by_key(|sight| sight.version);
        let floor = self.version;
        for Sight { version, values, own, .. } in sights {
            if version <= floor || version == self.version {
                wrong.push(format!("version {version} was answered after {}", self.version));
            }
            for (key, value) in &values {
                let known = self.may_be.entry(key).or_default();
                let mut may_have_been = maybe.iter().filter_map(|written| written.get(key));
                if !own.contains(key) && !known.contains(value) && !may_have_been.any(|other| other == value) {
                    wrong.push(format!("lost: at version {version} {key} is `{value}`, and may only be {known:?}"));
                }
                *known = [value.clone()].into();
            }
            self.version = self.version.max(version);
            self.history.insert(version, values);
        }
        for (key, value) in maybe.iter().copied().flatten() {
            self.may_be.entry(key).or_default().insert(value.clone());
        }
        wrong
    }
}
