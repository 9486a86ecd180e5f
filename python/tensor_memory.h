// Where the memory of tensors comes from in a Python process. The `penstock` command is linked with
// tcmalloc; Python has the system's allocator, under which the same steps took 10 to 15 % longer
// (docs/lab/performance.md, "Imported models").
#pragma once

namespace penstock::python {

/// From now on PyTorch takes tensors on the CPU from tcmalloc, where the machine has it; all other
/// memory of the process is as before. Nothing changes without tcmalloc, and with
/// PENSTOCK_ALLOCATOR=system in the environment. For the import of the package: PyTorch's
/// allocators must not be changed while another thread uses them.
/// Returns whether tcmalloc is used.
bool take_tensors_from_tcmalloc();

}  // namespace penstock::python
