/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Landlock for programs that need no file once they have started. */

#include <stdint.h>

/* Parts of the network that are refused too, where the kernel supports it. */
enum { FENCE_BIND = 1 << 0, FENCE_CONNECT = 1 << 1 };

/* From now on this process opens, makes and executes no file, signals no other process and
 * reaches no abstract socket. Descriptors that it has stay usable. Without Landlock in Linux
 * nothing happens: the caller's system call filter remains. Returns 0 or negative errno. */
int fence_files(uint64_t network);
