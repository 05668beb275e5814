/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bash of a session. It is a child process that reads code from one pipe and reports the
 * status of each piece, followed by its whole state as text, on another. bash inherits no
 * descriptor of ours: it opens them briefly through /proc/PID/fd. So neither bash nor its
 * children can lose, keep or inherit one. When a bash ends (exit, exec, set -e, a crash,
 * SIGINT), the next one gets its state. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct bash {
    const char *program;
    pid_t pid;
    /* Pipes. This process holds both ends; bash opens the end it needs by path. */
    int go_read, go_write;         /* code, ended by a NUL */
    int report_read, report_write; /* status and state after each piece of code */
    int exit_read, exit_write;     /* the same from the EXIT trap */
    /* Files that bash opens by path. */
    int code_file, save_file, stdin_file;
    char token[33];
    struct buf report, last_words;
    struct buf state; /* latest reported state; empty when there is none */
    bool left_state;  /* the EXIT trap of this bash has reported a state */
    /* $- at that time; x and v are off between pieces and restored before the next. */
    char flags[64];
};

/* In bytes. Code longer than BASH_CODE_IN_PIPE goes through a file, which bash reads faster. */
enum { BASH_STATE_MAX = 8 << 20, BASH_CODE_IN_PIPE = 2048 };

/* Makes the pipes and files. Returns negative errno on failure. */
int bash_init(struct bash *b, const char *program);

/* Starts a bash with this process's environment; with `bare` without any, because it will get a
 * state. */
int bash_start(struct bash *b, bool bare);

/* Sets stdin of the next piece. An empty one is /dev/null. */
int bash_set_stdin(struct bash *b, const char *data, size_t len);

/* Sends code. `prefix` goes before it on its first line. */
int bash_send(struct bash *b, const char *prefix, const char *code, size_t len);
int bash_send_state(struct bash *b);

/* Reads the report pipe. Returns how many rounds bash has begun; *ret_status is the last
 * status. */
int bash_read_report(struct bash *b, int *ret_status);

/* Reads the report of the EXIT trap. True once it holds a whole state. */
bool bash_read_last_words(struct bash *b);
