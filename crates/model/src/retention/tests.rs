use super::*;
use proptest::prelude::*;

const RULES: Rules = Rules { warning_days: 3, trash: DAY };
const START: u64 = 1_763_251_200_000;

fn day(day: u32) -> Timestamp {
    Timestamp(START).after(days(day))
}

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

fn fresh() -> Retention {
    Retention::new(30, day(0))
}

/// All that is due at a moment, one step after the other.
fn round(kept: &mut Retention, in_use: bool, at: Moment) -> Vec<Due> {
    let mut done = Vec::new();
    while let Some(due) = kept.due(RULES, in_use, at) {
        done.push(due);
        if due == Due::Purge {
            break;
        }
        *kept = kept.apply(due, at.now);
        assert!(done.len() < 8, "{done:?} without end");
    }
    done
}

fn on(kept: &mut Retention, now: Timestamp) -> Vec<Due> {
    round(kept, false, Moment::believed(now))
}

#[test]
fn day_by_day() {
    let mut kept = fresh();
    for today in 0..=33 {
        let wanted = match today {
            27 => vec![Due::Say(Level::Warning)],
            28 => vec![Due::Say(Level::Reminder)],
            29 => vec![Due::Say(Level::Final)],
            30 => vec![Due::Mark],
            31 => vec![Due::Trash],
            32 | 33 => vec![Due::Purge],
            _ => vec![],
        };
        assert_eq!(on(&mut kept, day(today)), wanted, "on day {today}");
        let standing = match today {
            0..=26 => Standing::Active,
            27..=29 => Standing::Warned,
            30 => Standing::Marked,
            _ => Standing::Trashed,
        };
        assert_eq!(kept.standing(), standing, "on day {today}");
    }
}

#[test]
fn each_once_however_often_one_looks() {
    let mut kept = fresh();
    let (mut now, mut done) = (day(0), Vec::new());
    while now < day(32) {
        done.extend(on(&mut kept, now));
        now = now.after(Duration::from_mins(7));
    }
    let said = [Level::Warning, Level::Reminder, Level::Final].map(Due::Say);
    assert_eq!(done, [&said[..], &[Due::Mark, Due::Trash]].concat());
}

#[test]
fn nothing_is_due_a_millisecond_early() {
    let mut kept = fresh();
    for (today, due) in [(27, Due::Say(Level::Warning)), (28, Due::Say(Level::Reminder)), (29, Due::Say(Level::Final))]
    {
        assert_eq!(on(&mut kept, Timestamp(day(today).0 - 1)), [], "before day {today}");
        assert_eq!(on(&mut kept, day(today)), [due]);
    }
    assert_eq!(on(&mut kept, Timestamp(day(30).0 - 1)), []);
    assert_eq!(on(&mut kept, day(30).after(hours(5))), [Due::Mark]);
    assert_eq!(on(&mut kept, day(31)), [], "a whole day after the mark, not after the end");
    assert_eq!(on(&mut kept, day(31).after(hours(5))), [Due::Trash]);
    assert_eq!(on(&mut kept, day(32)), []);
    assert_eq!(on(&mut kept, day(32).after(hours(5))), [Due::Purge]);
}

#[test]
fn who_was_away_for_weeks_says_the_last_word_marks_and_waits_a_day() {
    let mut kept = fresh();
    assert_eq!(on(&mut kept, day(90)), [Due::Say(Level::Final), Due::Mark]);
    assert_eq!(on(&mut kept, day(90).after(hours(23))), []);
    assert_eq!(on(&mut kept, day(91)), [Due::Trash]);
    let mut warned = fresh();
    assert_eq!(on(&mut warned, day(27)), [Due::Say(Level::Warning)]);
    assert_eq!(on(&mut warned, day(29)), [Due::Say(Level::Final)], "the reminder is of yesterday");
}

#[test]
fn an_access_gives_it_its_days_again_and_takes_back_what_was_said() {
    for (today, standing) in [(3, Standing::Active), (29, Standing::Warned), (30, Standing::Marked)] {
        let mut kept = fresh();
        for past in 0..=today {
            on(&mut kept, day(past));
        }
        assert_eq!(kept.standing(), standing);
        kept.access(day(today).after(hours(1)));
        assert_eq!((kept.standing(), kept.expires_at), (Standing::Active, day(today + 30).after(hours(1))));
        assert_eq!(on(&mut kept, day(today + 27)), []);
        assert_eq!(on(&mut kept, day(today + 27).after(hours(1))), [Due::Say(Level::Warning)], "it is said anew");
    }
}

#[test]
fn an_extension_is_added_and_no_access_shortens_it() {
    let mut kept = fresh();
    kept.extend(100, day(2));
    assert_eq!(kept.expires_at, day(130));
    kept.access(day(5));
    assert_eq!((kept.expires_at, kept.last_accessed_at), (day(130), day(5)));
    kept.access(day(120));
    assert_eq!(kept.expires_at, day(150));
    // What has been over for longer than it is extended by has those days nevertheless.
    let mut late = fresh();
    on(&mut late, day(90));
    late.extend(7, day(90));
    assert_eq!((late.expires_at, late.standing()), (day(97), Standing::Active));
    let mut marked = fresh();
    on(&mut marked, day(30));
    marked.extend(7, day(30));
    assert_eq!(on(&mut marked, day(33)), []);
    assert_eq!(marked.expires_at, day(37));
    marked.extend(u32::MAX, day(33));
    marked.extend(u32::MAX, day(33));
    assert_eq!(on(&mut marked, day(40000)), []);
}

#[test]
fn what_is_pinned_is_left_alone_and_later_has_its_warnings() {
    let mut kept = fresh();
    on(&mut kept, day(30));
    kept.pin();
    assert_eq!((kept.standing(), kept.days_left(day(31))), (Standing::Active, None));
    for today in 31..200 {
        assert_eq!(on(&mut kept, day(today)), []);
    }
    kept.unpin(RULES, day(200));
    let said: Vec<_> = (200..=204).map(|today| on(&mut kept, day(today))).collect();
    let level = |level| vec![Due::Say(level)];
    assert_eq!(
        said,
        [level(Level::Warning), level(Level::Reminder), level(Level::Final), vec![Due::Mark], vec![Due::Trash]]
    );
    let mut young = fresh();
    young.unpin(RULES, day(10));
    assert_eq!(young.expires_at, day(30), "it wasn't pinned");
}

#[test]
fn what_is_in_use_gets_its_days_when_they_would_end() {
    let mut kept = fresh();
    assert_eq!(round(&mut kept, true, Moment::believed(day(26))), []);
    assert_eq!(round(&mut kept, true, Moment::believed(day(27))), [Due::Keep]);
    assert_eq!((kept.expires_at, kept.last_accessed_at), (day(57), day(0)));
    let mut marked = fresh();
    on(&mut marked, day(30));
    assert_eq!(round(&mut marked, true, Moment::believed(day(31))), [Due::Keep]);
    assert_eq!(marked.standing(), Standing::Active);
}

#[test]
fn out_of_the_trash_it_has_all_its_days() {
    let mut kept = fresh();
    on(&mut kept, day(30));
    on(&mut kept, day(31));
    kept.restore(day(31).after(hours(23)));
    assert_eq!((kept.standing(), kept.expires_at), (Standing::Active, day(61).after(hours(23))));
}

#[test]
fn few_days_have_few_warnings() {
    let mut one = Retention::new(1, day(0));
    assert_eq!(on(&mut one, day(0)), []);
    assert_eq!(on(&mut one, day(1)), [Due::Mark]);
    assert_eq!(on(&mut one, day(2)), [Due::Trash]);
    let mut two = Retention::new(2, day(0));
    assert_eq!(on(&mut two, day(0)), []);
    assert_eq!(on(&mut two, day(1)), [Due::Say(Level::Final)]);
    let mut none = fresh();
    let silent = Rules { warning_days: 0, ..RULES };
    assert_eq!(none.due(silent, false, Moment::believed(day(29))), None);
    none = none.apply(Due::Mark, day(30));
    assert_eq!(none.due(silent, false, Moment::believed(day(31))), Some(Due::Trash));
    let week = Rules { warning_days: 7, ..RULES };
    let said = |today| fresh().due(week, false, Moment::believed(day(today)));
    assert_eq!(
        [22, 23, 25, 26, 28, 29].map(said),
        [
            None,
            Some(Due::Say(Level::Warning)),
            Some(Due::Say(Level::Warning)),
            Some(Due::Say(Level::Reminder)),
            Some(Due::Say(Level::Reminder)),
            Some(Due::Say(Level::Final)),
        ]
    );
}

#[test]
fn other_days_count_from_the_last_access_and_take_no_extension_away() {
    let mut kept = fresh();
    kept.access(day(4));
    kept.keep_for(10);
    assert_eq!(kept.expires_at, day(14));
    kept.keep_for(60);
    assert_eq!(kept.expires_at, day(64));
    kept.extend(5, day(5));
    kept.keep_for(10);
    assert_eq!(kept.expires_at, day(69));
}

#[test]
fn a_leap_forward_starts_the_day_after_the_mark_and_the_hours_in_the_trash_again() {
    let mut kept = fresh();
    on(&mut kept, day(30));
    let leapt = |now| Moment { now, leapt_at: Some(day(400)) };
    assert_eq!(round(&mut kept, false, leapt(day(400))), [Due::Wait]);
    // From here on it is in what is stored, not in what one server remembers.
    assert_eq!(on(&mut kept, day(400).after(hours(23))), []);
    assert_eq!(round(&mut kept, false, leapt(day(401))), [Due::Trash]);
    let mut trashed = fresh();
    trashed.trashed_at = Some(day(3));
    assert_eq!(round(&mut trashed, false, leapt(day(400).after(hours(1)))), [Due::Wait]);
    assert_eq!(on(&mut trashed, day(401)), []);
    assert_eq!(on(&mut trashed, day(401).after(hours(1))), [Due::Purge]);
}

#[test]
fn set_back_a_little_says_nothing_twice_and_set_back_far_says_all_again() {
    let mut kept = fresh();
    assert_eq!(on(&mut kept, day(27)), [Due::Say(Level::Warning)]);
    assert_eq!(on(&mut kept, day(26)), []);
    assert_eq!(on(&mut kept, day(27)), []);
    // A machine that believed it was next century, and was told better.
    let mut far = fresh();
    assert_eq!(on(&mut far, day(36_500)), [Due::Say(Level::Final), Due::Mark]);
    assert_eq!(on(&mut far, day(1)), [Due::Recall]);
    assert_eq!(far, fresh());
    let mut trashed = fresh();
    trashed.trashed_at = Some(day(9));
    assert_eq!(on(&mut trashed, day(2)), [], "set back, the trash is emptied later, never earlier");
}

#[derive(Debug, Clone)]
enum Event {
    Pass(u64),
    /// While the server is down.
    Away(u64),
    LeapForward(u64),
    SetBack(u64),
    Access,
    Use(bool),
    Pin,
    Unpin,
    Extend(u32),
    Restore,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..40u64).prop_map(Event::Pass),
        1 => (1..1500u64).prop_map(Event::Away),
        1 => (1..1500u64).prop_map(Event::LeapForward),
        1 => (1..1500u64).prop_map(Event::SetBack),
        1 => Just(Event::Access),
        1 => any::<bool>().prop_map(Event::Use),
        1 => Just(Event::Pin),
        1 => Just(Event::Unpin),
        1 => (1..60u32).prop_map(Event::Extend),
        1 => Just(Event::Restore),
    ]
}

/// True hours, and what the clock shows; a round after every event, as if each had been a restart.
struct World {
    kept: Retention,
    hour: u64,
    shown: Timestamp,
    leapt_at: Option<Timestamp>,
    in_use: bool,
    marked: Option<u64>,
    trashed: Option<u64>,
}

impl World {
    fn look(&mut self) -> Result<(), TestCaseError> {
        let at = Moment { now: self.shown, leapt_at: self.leapt_at };
        let before = self.kept.clone();
        let done = round(&mut self.kept, self.in_use, at);
        let untouchable = before.trashed_at.is_none() && before.pinned;
        prop_assert!(!untouchable || done.is_empty(), "pinned, and {done:?}");
        prop_assert!(
            before.trashed_at.is_some() || !self.in_use || done.iter().all(|due| *due == Due::Keep),
            "{done:?}"
        );
        for due in &done {
            match due {
                Due::Say(level) => prop_assert!(before.notified < Some(*level) || done.contains(&Due::Recall)),
                Due::Mark => self.marked = Some(self.hour),
                Due::Trash => {
                    prop_assert!(before.marked_at.is_some(), "marked and trashed at once");
                    let marked = self.marked.take().unwrap_or(self.hour);
                    prop_assert!(self.hour >= marked + 24, "trashed {} hours after its mark", self.hour - marked);
                    self.trashed = Some(self.hour);
                }
                Due::Purge => {
                    let trashed = self.trashed.unwrap_or(self.hour);
                    prop_assert!(self.hour >= trashed + 24, "{} hours in the trash", self.hour - trashed);
                }
                Due::Keep | Due::Recall => self.marked = None,
                Due::Wait => {}
            }
        }
        // Looking again, at once or after a restart, finds nothing more to do.
        if done.last() != Some(&Due::Purge) {
            prop_assert_eq!(self.kept.due(RULES, self.in_use, at), None);
        }
        Ok(())
    }

    fn happen(&mut self, event: &Event) {
        let shown = self.shown;
        match event {
            Event::Pass(span) | Event::Away(span) => {
                self.hour += span;
                self.shown = shown.after(hours(*span));
                if matches!(event, Event::Away(_)) {
                    self.leapt_at = None;
                }
            }
            Event::LeapForward(span) => {
                self.shown = shown.after(hours(*span));
                self.leapt_at = Some(self.shown);
            }
            Event::SetBack(span) => {
                self.shown = Timestamp(shown.0 - millis(hours(*span)));
                self.leapt_at = None;
            }
            Event::Use(in_use) => self.in_use = *in_use,
            Event::Restore => self.kept.restore(shown),
            _ if self.kept.trashed_at.is_some() => {}
            Event::Access => self.kept.access(shown),
            Event::Pin => self.kept.pin(),
            Event::Unpin => self.kept.unpin(RULES, shown),
            Event::Extend(by) => self.kept.extend(*by, shown),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever happens: a day between mark and trash, the hours in the trash, never what is pinned or in use.
    #[test]
    fn nothing_goes_early_or_twice(events in proptest::collection::vec(event(), 1..80)) {
        let shown = Timestamp(START + millis(days(20_000)));
        let mut world = World {
            kept: Retention::new(30, shown), hour: 0, shown, leapt_at: None, in_use: false, marked: None, trashed: None,
        };
        for event in &events {
            world.happen(event);
            world.look()?;
        }
    }

    /// Left alone it goes, however often and when one looks, and each step is told once and in order.
    #[test]
    fn left_alone_it_goes_in_order(gaps in proptest::collection::vec(1..30u64, 200..300), keep in 4..60u32) {
        let mut kept = Retention::new(keep, day(0));
        let (mut now, mut done) = (day(0), Vec::new());
        for gap in gaps {
            now = now.after(hours(gap));
            let some = round(&mut kept, false, Moment::believed(now));
            done.extend(some);
            if done.last() == Some(&Due::Purge) {
                break;
            }
        }
        if now >= day(keep + 8) {
            let order = |due: &Due| match due {
                Due::Say(level) => *level as u8,
                Due::Mark => 3,
                Due::Trash => 4,
                Due::Purge => 5,
                Due::Keep | Due::Recall | Due::Wait => 9,
            };
            prop_assert!(done.is_sorted_by(|one, next| order(one) < order(next)), "{:?}", done);
            prop_assert!(done.ends_with(&[Due::Mark, Due::Trash, Due::Purge]), "{:?}", done);
        }
    }

    /// Nobody's access makes it go earlier.
    #[test]
    fn an_access_never_shortens(extended in 0..400u32, at in 0..400u32) {
        let mut kept = fresh();
        kept.extend(extended, day(0));
        let before = kept.expires_at;
        kept.access(day(at));
        prop_assert!(kept.expires_at >= before && kept.expires_at >= day(at + 30));
    }
}
