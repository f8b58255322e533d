//! What happens next, by the dice.

use crate::dice::Dice;
use crate::memory::NAMES;
use crate::op::{Op, Place, Text};
use crate::world::World;
use std::time::Duration;
use stead_model::ids::{CommandId, InstanceId, LeaseId, ThreadId};
use stead_model::lease::Seen;
use stead_server::lease::{AutoResume, Force};
use stead_server::provider::fake::{Call, Mischief};
use stead_server::provider::{Handle, Trouble};
use stead_server::store::{Page, Store};

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) dice: Dice,
    /// Makes what is written unlike all that was written before.
    next: u64,
    /// Commands with ids of their callers'.
    chosen: Vec<(Place, Text, CommandId)>,
    crowd: Vec<ThreadId>,
    /// An instance is about to be given up while a command runs in it.
    betrayed: bool,
}

impl Plan {
    pub(crate) fn new(dice: Dice) -> Self {
        Self { dice, next: 0, chosen: Vec::new(), crowd: Vec::new(), betrayed: false }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whom the next requests are about: all, or a few who get into each other's way.
    pub(crate) fn gather(&mut self, world: &World) {
        self.crowd.clone_from(&world.threads);
        if self.betrayed {
            self.crowd = self.dice.pick(&world.threads).into_iter().collect();
        } else if self.dice.in_(60) {
            let first = usize::try_from(self.dice.below(world.threads.len() as u64)).unwrap_or(0);
            self.crowd = world.threads.iter().skip(first).take(2).cloned().collect();
        }
    }

    fn thread(&mut self, world: &World) -> ThreadId {
        let crowd = if self.crowd.is_empty() { &world.threads } else { &self.crowd };
        self.dice.pick(crowd).unwrap()
    }

    fn place(&mut self, world: &World) -> Place {
        let thread = self.thread(world);
        // The first and the third have a second terminal.
        let second = matches!(thread.as_str(), "t0" | "t2") && self.dice.in_(35);
        Place { thread, name: if second { "build" } else { "default" } }
    }

    pub(crate) fn text(&mut self) -> Text {
        match self.dice.below(10) {
            0..=2 => Text::Cd(format!("/d{}", self.fresh())),
            3..=5 => Text::Export(self.dice.pick(&NAMES).unwrap(), format!("v{}", self.fresh())),
            6 | 7 => Text::Env,
            _ => Text::Other(self.dice.pick(&["pwd", "echo hi", "false", "exit 3"]).unwrap()),
        }
    }

    fn force(&mut self) -> Force {
        if self.dice.in_(30) { Force::Yes } else { Force::No }
    }

    /// A thread is deleted: its commands are not sent again.
    pub(crate) fn delete(&mut self, thread: &ThreadId) -> Vec<CommandId> {
        let gone = self.chosen.extract_if(.., |(place, ..)| place.thread == *thread);
        gone.map(|(_, _, id)| id).collect()
    }

    pub(crate) async fn op(&mut self, world: &World) -> Op {
        let most = if self.betrayed { 38 } else { 100 };
        if self.betrayed && self.dice.in_(30) {
            return Op::Look(self.thread(world));
        }
        match self.dice.below(most) {
            0..=37 => {
                let (place, text) = (self.place(world), self.text());
                let id = self.dice.in_(25).then(|| CommandId::parse(&format!("mine-{}", self.fresh())).unwrap());
                if let Some(id) = &id {
                    self.chosen.push((place.clone(), text.clone(), id.clone()));
                }
                Op::Run(place, text, id)
            }
            38..=41 => match self.dice.pick(&self.chosen.clone()) {
                Some((place, text, id)) => Op::Repeat(place, text, id),
                None => Op::Reap,
            },
            42..=49 => {
                let resume = if self.dice.in_(70) { AutoResume::Yes } else { AutoResume::No };
                Op::Get(self.place(world), resume)
            }
            50..=53 => Op::Touch(self.place(world)),
            54..=60 => Op::Pause(self.thread(world), self.force()),
            61..=64 => Op::Resume(self.thread(world)),
            65..=70 => Op::Destroy(self.thread(world), self.force()),
            71..=74 => Op::Delete(self.thread(world)),
            75..=78 => {
                let (thread, other) = (self.thread(world), self.thread(world));
                let share = (self.dice.in_(50) && thread != other).then_some(other);
                Op::Create(thread, share)
            }
            79..=80 => Op::CreateTerminal(self.thread(world)),
            81..=83 => Op::Close(self.thread(world)),
            84..=87 => self.restore(world).await,
            88 | 89 => {
                let (place, name) = (self.place(world), self.dice.pick(&NAMES).unwrap());
                Op::SetEnv(place, name, format!("e{}", self.fresh()))
            }
            90 | 91 => Op::Reap,
            92..=95 => Op::Look(self.thread(world)),
            _ => self.about_instances(world),
        }
    }

    async fn restore(&mut self, world: &World) -> Op {
        let terminals = world.store.terminals(&Page::all()).await.unwrap();
        let Some(terminal) = self.dice.pick(&terminals) else { return Op::Reap };
        let name = if terminal.name == "build" { "build" } else { "default" };
        let version = self.dice.below(terminal.version + 1);
        Op::Restore(Place { thread: terminal.thread, name }, terminal.id, version)
    }

    fn about_instances(&mut self, world: &World) -> Op {
        let Some((handle, _)) = self.dice.pick(&world.fake.truth()) else { return Op::Reap };
        match self.dice.below(4) {
            0 | 1 => Op::Kill(handle.instance, Duration::from_millis(self.dice.below(50))),
            2 => Op::Adopt(handle.instance),
            _ => Op::Remove(handle.instance),
        }
    }

    /// Something that nobody asked for. Whether it was more than the passing of time.
    pub(crate) fn fate(&mut self, world: &mut World) -> bool {
        let mut disturbed = false;
        self.betrayed = self.dice.in_(3);
        if self.betrayed {
            let slow = Mischief::Delay(Duration::from_secs(4));
            world.fake.next(Call::Run, slow.clone());
            world.fake.next(Call::Run, slow);
            world.fake.next(Call::Status, Mischief::Say(Seen::Gone));
            world.clock.pass(4000);
            world.trace().tell(|| "       slow commands in an instance that will be said to be gone".to_owned());
        }
        while self.dice.in_(45) {
            let told = match self.dice.below(12) {
                0..=5 => self.mischief(world),
                6 | 7 => self.time(world),
                _ => {
                    disturbed = true;
                    self.blow(world)
                }
            };
            world.trace().tell(|| format!("       {told}"));
        }
        disturbed
    }

    fn time(&mut self, world: &World) -> String {
        const SECOND: u64 = 1000;
        const HOUR: u64 = 3600 * SECOND;
        let by = self.dice.pick(&[5 * SECOND, 2 * HOUR, 25 * HOUR]).unwrap();
        let time = self.dice.pick(&[1, 400, 3 * SECOND, 4 * SECOND, 30 * SECOND, HOUR, HOUR + 1, 24 * HOUR]).unwrap();
        match self.dice.below(20) {
            0 | 1 => {
                world.clock.set_back(by);
                format!("the clock is set back by {by} ms")
            }
            2 | 3 => {
                world.clock.set_ahead(by);
                format!("the clock is set ahead by {by} ms")
            }
            _ => {
                world.clock.pass(time);
                format!("{time} ms pass")
            }
        }
    }

    fn mischief(&mut self, world: &World) -> String {
        let call = self.dice.pick(&[
            Call::Create,
            Call::Create,
            Call::Status,
            Call::Status,
            Call::Status,
            Call::Pause,
            Call::Resume,
            Call::Destroy,
            Call::Access,
            Call::Run,
            Call::Capture,
        ]);
        let call = call.unwrap();
        let trouble = [Trouble::Unavailable, Trouble::Exhausted, Trouble::Denied, Trouble::NotFound, Trouble::Conflict];
        let trouble = self.dice.pick(&trouble).unwrap();
        let delay = Duration::from_millis(self.dice.pick(&[1, 20, 4000, 200_000]).unwrap());
        let seen = self.dice.pick(&[Seen::Running, Seen::Paused, Seen::Gone, Seen::Unclear]).unwrap();
        let in_shell = matches!(call, Call::Run | Call::Capture);
        let mischief = match self.dice.below(8) {
            0 | 1 => Mischief::FailAfter,
            2 => Mischief::FailBefore,
            3 => Mischief::Refuse(trouble),
            4 | 5 if call == Call::Status => Mischief::Say(seen),
            // A command may take for ever, and so may whoever waits for it.
            6 if !in_shell => Mischief::Hang,
            7 if !in_shell => Mischief::HangAfter,
            _ => Mischief::Delay(delay),
        };
        let told = format!("the next {call:?}: {mischief:?}");
        world.fake.next(call, mischief);
        told
    }

    /// To an instance.
    fn blow(&mut self, world: &mut World) -> String {
        let Some((handle, seen)) = self.dice.pick(&world.fake.truth()) else { return "nothing to hit".to_owned() };
        match self.dice.below(5) {
            0..=2 => {
                world.fake.kill(&handle.instance);
                format!("{} dies", handle.instance)
            }
            3 => {
                world.fake.pause_behind_our_back(&handle.instance, seen == Seen::Running);
                format!("{} was {seen:?} and is not", handle.instance)
            }
            _ => {
                let instance = InstanceId::parse(&format!("inst-lost-{}", self.fresh())).unwrap();
                let lease = if self.dice.in_(50) {
                    handle.lease
                } else {
                    LeaseId::parse(&format!("lease-lost-{}", self.fresh())).unwrap()
                };
                let told = format!("{instance} of {lease} is there, and nobody made it");
                let lost = Handle { instance: instance.clone(), lease, workspace: "w".into(), reference: "r".into() };
                world.fake.abandon(lost);
                world.abandoned.insert(instance);
                told
            }
        }
    }
}
