//! analysis
pub mod model;
