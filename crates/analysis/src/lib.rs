//! analysis
pub mod counts;
pub mod model;
pub mod pass;
pub mod passes;
