/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON lines on stderr; on a terminal, lines for people. The code that decides what to do about
 * a failure logs it, once. Never log code, stdin, values of the environment or keys. */

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Parses "error", "warn" or "warning", "info", "debug". -EINVAL otherwise. */
int log_set_level(const char *name);
enum log_level log_get_level(void);

/* Writes one event as one line of at most PIPE_BUF bytes. After msg come pairs of a field name
 * and its value, closed by NULL: log_event(LOG_INFO, "run finished", "run", id, "status", "ok",
 * NULL). All values are strings. Control characters and invalid UTF-8 are escaped; values that
 * do not fit are cut. A NULL value is written as null and ends the list. Any thread may call
 * it; errno is kept. */
void log_event(enum log_level level, const char *msg, ...) __attribute__((sentinel));

/* Whether the descriptor is a terminal. Works in the server too, whose filter refuses the ioctl
 * of isatty(). */
bool log_is_terminal(int fd);

/* Where lines go; stderr by default. For tests. */
void log_set_fd(int fd);
