//! The recorder: the functions it exports stand in front of the allocator.
