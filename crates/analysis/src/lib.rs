//! analysis
pub mod model;
pub mod pass;
