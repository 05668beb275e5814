/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A line on a terminal that tells which step takes so long: "compiling s.cpp … 1.2 s". It
 * appears after half a second of silence and is removed at the end. */

/* Does nothing when stderr is not a terminal. One line at a time. */
void progress_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Removes the line. May be called at any time, also twice. */
void progress_end(void);
