/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `hermes run` does with a result, on this host and with --url. */

#include "run/run.h"

/* Prints the compiler's output after a failed compilation, and what ended the program. Writes
 * the collected files to out_dir (NULL: hermes-out). Returns the exit status, which is not 0
 * when a file could not be written. A cancelled run counts as killed by `cancel_signal`. */
int run_output(const struct run_result *result, const char *out_dir, int cancel_signal);
