//! analysis
pub mod model;
pub mod pass;
pub mod passes;
