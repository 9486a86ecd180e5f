// Memory that is freed and needed again at once, thousands of times: what a program that learns
// from a stream does with the tensors of each frame.
//
//   int main() { penstock::keep_freed_memory(); ... }
#pragma once

namespace penstock {

/// glibc's allocator keeps what is freed from now on, instead of handing large blocks back to the
/// system, from where they come anew with a page fault for every 4 KiB. The process stays as large
/// as it ever was. Of tcmalloc the same is asked by the environment variable
/// TCMALLOC_RELEASE_RATE=0, which it reads when it is loaded. For the start of a program; other
/// allocators are left as they are.
void keep_freed_memory();

/// Gives what is free in the heap back to the system: after a phase that needed much, before one
/// that runs long. Takes milliseconds per gigabyte. Of tcmalloc as of glibc; other allocators are
/// left as they are.
void give_back_freed_memory();

}  // namespace penstock
