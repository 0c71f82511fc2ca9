//! Exactly once, put to the test: scenarios run again and again, each time with another fault at another call to storage or
//! queue. Afterwards a fresh process finishes the work, everything is delivered again, nights of upkeep pass, and every
//! table is what it is without faults.
//!
//! ```text
//! scenario   contracts and steps: files land, streams deliver, functions are called
//! world      what outlives processes: lake, landing zone, queue, time
//! process    the functions, called as the host calls them, over a store and a queue whose calls meet ...
//! faults     ... a script, which counts them and lets a fault fall on one (`crate::faults`)
//! point      scenario x call x fault: run, then compare with the run without faults
//! matrix     all points, or a sample; certificate: what they prove
//! ```
//!
//! Nothing lists the calls: a run without faults counts them. So whatever a step comes to do is covered.

pub mod certificate;
pub mod chance;
pub mod changes;
pub mod ground;
mod invariants;
pub mod matrix;
pub mod mutations;
pub mod point;
pub mod process;
pub mod same;
pub mod scenario;
pub mod soak;
pub mod times;
pub mod world;
