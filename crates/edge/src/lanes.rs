//! Bounds on calls in work, lane by lane (AADP §16): what is over one is refused at once, and nothing waits in a queue
//! that nobody sees, but for calls on streams, whose clients slow down.
//! Absent on purpose: which call is in which lane; see [`crate::roles`].
//! INVARIANT (free switch): no other call, and no slow body of others, holds a place that the kill switch needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use placet_core::ids::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Caller;
use crate::limits::{
    ADMIN_PER_CALLER_MAX, CONTROL_IN_FLIGHT_MAX, CONTROL_PER_CALLER_MAX, HEALTH_WATCHES_MAX, REFLECTIONS_MAX,
    STREAMS_SHARE,
};
use crate::reject::{Kind, Refusal};
use crate::roles::Lane;

const BUSY: &str = "too many calls are in work; nothing happened, try again";

/// All lanes; cheap to clone.
#[derive(Clone)]
pub(crate) struct Lanes {
    decides: Arc<Semaphore>,
    /// Of the places for decides, those that streams may hold.
    streams: Arc<Semaphore>,
    admin: Attended,
    control: Attended,
    health_watches: Arc<Semaphore>,
    reflections: Arc<Semaphore>,
}

/// What a call holds from before its body is read until its answer is ready.
pub(crate) struct Place {
    _lane: Option<OwnedSemaphorePermit>,
    _seat: Option<Seat>,
}

impl Lanes {
    pub(crate) fn new(decides: usize, admin: usize) -> Self {
        let lane = |max: usize| Arc::new(Semaphore::new(max));
        Self {
            decides: lane(decides),
            streams: lane((decides / STREAMS_SHARE).max(1)),
            admin: Attended::new(admin, ADMIN_PER_CALLER_MAX),
            control: Attended::new(CONTROL_IN_FLIGHT_MAX, CONTROL_PER_CALLER_MAX),
            health_watches: lane(HEALTH_WATCHES_MAX),
            reflections: lane(REFLECTIONS_MAX),
        }
    }

    /// Another bound than the usual ones on the streams that take no token.
    pub(crate) fn with_public_max(mut self, open: usize) -> Self {
        self.health_watches = Arc::new(Semaphore::new(open));
        self.reflections = Arc::new(Semaphore::new(open));
        self
    }

    /// A place for a call whose body was not read yet. A decide takes its place in the lane at once, since it holds a
    /// large body; other calls of authenticated callers hold one of their caller's.
    pub(crate) fn enter(&self, lane: Lane, caller: Option<&Caller>) -> Result<Place, Refusal> {
        let lane = match lane {
            Lane::Free => return Ok(Place { _lane: None, _seat: None }),
            Lane::Admin => return self.admin.seat(caller),
            Lane::Control => return self.control.seat(caller),
            Lane::Decide => &self.decides,
            Lane::HealthWatch => &self.health_watches,
            Lane::Reflection => &self.reflections,
        };
        Ok(Place { _lane: Some(taken(lane)?), _seat: None })
    }

    /// A place for a call whose body was read, where the guard took none.
    pub(crate) fn work(&self, lane: Lane) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        match lane {
            Lane::Admin => taken(&self.admin.lane).map(Some),
            Lane::Control => taken(&self.control.lane).map(Some),
            Lane::Decide | Lane::HealthWatch | Lane::Reflection | Lane::Free => Ok(None),
        }
    }

    /// A place for a call on a stream, when there is one.
    pub(crate) async fn wait(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        // Neither is ever closed.
        let share = Arc::clone(&self.streams).acquire_owned().await.ok()?;
        let place = Arc::clone(&self.decides).acquire_owned().await.ok()?;
        Some((share, place))
    }
}

fn taken(lane: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(lane).try_acquire_owned().map_err(|_| Refusal::new(Kind::Unavailable, BUSY))
}

/// A lane in which no caller holds more than its part, read or unread.
#[derive(Clone)]
struct Attended {
    lane: Arc<Semaphore>,
    seats: Arc<Seats>,
}

struct Seats {
    each: usize,
    taken: Mutex<BTreeMap<Principal, usize>>,
}

struct Seat {
    of: Arc<Seats>,
    principal: Principal,
}

impl Attended {
    fn new(max: usize, each: usize) -> Self {
        Self { lane: Arc::new(Semaphore::new(max)), seats: Arc::new(Seats { each, taken: Mutex::default() }) }
    }

    fn seat(&self, caller: Option<&Caller>) -> Result<Place, Refusal> {
        // Every row of these lanes has roles.
        let Some(caller) = caller else { return Err(Refusal::new(Kind::Unauthenticated, "this takes a caller")) };
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let held = taken.entry(caller.principal.clone()).or_default();
        if *held >= self.seats.each {
            return Err(Refusal::new(Kind::Unavailable, BUSY));
        }
        *held += 1;
        let seat = Seat { of: Arc::clone(&self.seats), principal: caller.principal.clone() };
        Ok(Place { _lane: None, _seat: Some(seat) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = taken.get_mut(&self.principal) {
            *held -= 1;
            if *held == 0 {
                taken.remove(&self.principal);
            }
        }
    }
}
