/* SPDX-License-Identifier: Apache-2.0 */

/* See bash.h. LOOP and SAVE are the shell code that makes a bash work as an interpreter. */

#include "bash/bash.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

/* The program that bash runs. It is one line, so that line numbers in error messages are those
 * of the user's code. bash parses it before any alias exists, and `builtin` bypasses functions.
 * Reporting the state and reading the next code happen in the loop's condition: `continue`
 * leads there, `break` leads there through the outer loop, `set -e` has no effect there, and
 * its output, also that of the user's traps and traces, is hidden. */
static const char LOOP[] =
    "builtin trap '\\builtin . /proc/%1$d/fd/%2$d >|/proc/%1$d/fd/%3$d 2>/dev/null' EXIT; "
    "builtin trap '\\builtin exit 130' INT; builtin shopt -s expand_aliases; "
    "for ((;;)); do while { builtin . /proc/%1$d/fd/%2$d >|/proc/%1$d/fd/%4$d; "
    "builtin mapfile -t -n 1 -d '' BASH_EXECUTION_STRING </proc/%1$d/fd/%5$d || builtin exit "
    "125; "
    "} >/dev/null 2>&1; "
    "do builtin eval \"${BASH_EXECUTION_STRING[0]}\" </proc/%1$d/fd/%6$d; done; done";

/* Reports the status, then the whole state as text that recreates it. shopt options come before
 * what is parsed under them. Functions come before aliases, and aliases last, because they
 * change how all later text is parsed. Tracing is off meanwhile. This is a sourced file,
 * because no DEBUG trap fires in one. */
static const char SAVE[] =
    "\\builtin printf '%%s R %%d %%s\\0' %1$s \"$?\" \"$-\"\n"
    "\\builtin set +xv\n"
    "\\builtin unset -v BASH_EXECUTION_STRING || \\builtin :\n"
    "\\builtin printf '%%s S\\n\\\\builtin cd -- %%q\\n' %1$s \"${PWD-/}\"\n"
    "\\builtin shopt -p || \\builtin :\n"
    "\\builtin declare -p || \\builtin :\n"
    "\\builtin declare -f || \\builtin :\n"
    "\\builtin declare -F || \\builtin :\n"
    "\\builtin trap -p || \\builtin :\n"
    "\\builtin umask -p || \\builtin :\n"
    "if [[ $# -gt 0 && ${#FUNCNAME[@]} -lt 2 ]]; then \\builtin printf '\\\\builtin set --'; "
    "\\builtin printf ' %%q' "
    "\"$@\"; "
    "\\builtin printf '\\n'; fi\n"
    "\\builtin set +o\n"
    "\\builtin alias -p || \\builtin :\n"
    "\\builtin printf '\\0'\n";

enum { READS_MAX = 32 }; /* reads per call, so that a writer without end cannot block us */

static const char FROM_FILE[] =
    "builtin mapfile -t -n 1 -d '' BASH_EXECUTION_STRING </proc/%d/fd/%d; "
    "builtin eval \"${BASH_EXECUTION_STRING[0]}\"%s";

static int make_pipe(int *ret_read, int *ret_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    *ret_read = ends[0];
    *ret_write = ends[1];
    return 0;
}

static int make_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int fill_file(int fd, const char *data, size_t len)
{
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return fs_write_all(fd, data, len);
}

int bash_init(struct bash *b, const char *program)
{
    unsigned char noise[16];
    if (getrandom(noise, sizeof(noise), 0) != (ssize_t)sizeof(noise))
        return -EIO;
    str_hex(noise, sizeof(noise), b->token);
    b->program = program;
    buf_init(&b->report, BASH_STATE_MAX + 4096);
    buf_init(&b->last_words, BASH_STATE_MAX + 4096);
    buf_init(&b->state, BASH_STATE_MAX);
    int r = make_pipe(&b->go_read, &b->go_write);
    if (r == 0)
        r = make_pipe(&b->report_read, &b->report_write);
    if (r == 0)
        r = make_pipe(&b->exit_read, &b->exit_write);
    if (r < 0)
        return r;
    if (fcntl(b->report_read, F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(b->exit_read, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    if ((b->code_file = make_file("code")) < 0 || (b->save_file = make_file("save")) < 0 ||
        (b->stdin_file = make_file("stdin")) < 0)
        return -ENFILE;
    char text[2048];
    int n = snprintf(text, sizeof(text), SAVE, b->token);
    if ((r = fill_file(b->save_file, text, (size_t)n)) < 0)
        return r;
    return bash_set_stdin(b, NULL, 0);
}

static _Noreturn void be_bash(const struct bash *b, pid_t kernel, bool bare)
{
    char loop[2048];
    (void)snprintf(loop, sizeof(loop), LOOP, (int)kernel, b->save_file, b->exit_write,
        b->report_write, b->go_read, b->stdin_file);
    char *argv[] = {(char *)"bash", (char *)"-c", loop, (char *)"bash", NULL};
    char *none[] = {NULL};
    /* A SIGINT that came to the old process group since the fork was meant for the bash before.
     * Ignoring SIGINT for a moment discards it. */
    (void)setpgid(0, 0);
    (void)signal(SIGINT, SIG_IGN);
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    sigset_t empty;
    (void)sigemptyset(&empty);
    (void)sigprocmask(SIG_SETMASK, &empty, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, 0);
    execve(b->program, argv, bare ? none : environ);
    (void)dprintf(2, "hermes-shell: %s: %s\n", b->program, strerror(errno));
    _exit(126);
}

int bash_start(struct bash *b, bool bare)
{
    /* Discard what the bash before left unread or reported in part. */
    char rest[4096];
    int flags = fcntl(b->go_read, F_GETFL);
    (void)fcntl(b->go_read, F_SETFL, flags | O_NONBLOCK);
    while (read(b->go_read, rest, sizeof(rest)) > 0 ||
           read(b->report_read, rest, sizeof(rest)) > 0)
        ;
    (void)fcntl(b->go_read, F_SETFL, flags & ~O_NONBLOCK);
    buf_clear(&b->report);
    buf_clear(&b->last_words);
    b->left_state = false;
    pid_t kernel = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        be_bash(b, kernel, bare);
    (void)setpgid(pid, pid);
    b->pid = pid;
    return 0;
}

int bash_set_stdin(struct bash *b, const char *data, size_t len)
{
    cleanup_close int fd =
        len ? memfd_create("stdin", MFD_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = len ? fs_write_all(fd, data, len) : 0;
    if (r < 0)
        return r;
    return dup3(fd, b->stdin_file, O_CLOEXEC) < 0 ? -errno : 0;
}

int bash_send(struct bash *b, const char *prefix, const char *code, size_t len)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, (size_t)64 << 20);
    int r = buf_append_str(&text, prefix);
    if (r == 0)
        r = buf_append(&text, code, len);
    if (r == 0)
        r = buf_append(&text, "", 1);
    if (r < 0)
        return r;
    /* Bash reads a pipe byte by byte, but a file in blocks. */
    if (text.len <= BASH_CODE_IN_PIPE)
        return fs_write_all(b->go_write, text.data, text.len);
    if ((r = fill_file(b->code_file, text.data, text.len)) < 0)
        return r;
    char go[256];
    int n = snprintf(go, sizeof(go), FROM_FILE, (int)getpid(), b->code_file, "");
    return fs_write_all(b->go_write, go, (size_t)n + 1);
}

int bash_send_state(struct bash *b)
{
    int r = fill_file(b->code_file, b->state.data, b->state.len + 1);
    if (r < 0)
        return r;
    char go[256];
    int n =
        snprintf(go, sizeof(go), FROM_FILE, (int)getpid(), b->code_file, " >/dev/null 2>&1");
    return fs_write_all(b->go_write, go, (size_t)n + 1);
}

/* Returns the next message, "R ..." or "S\n...", NUL-terminated, or NULL, and moves *at behind
 * it. Bytes before the token are skipped: the user's traps may print here. */
static char *next_message(struct buf *b, size_t *at, const char *token)
{
    while (*at < b->len) {
        char *text = b->data + *at;
        char *end = memchr(text, '\0', b->len - *at);
        if (!end)
            return NULL;
        *at = (size_t)(end + 1 - b->data);
        char *found = strstr(text, token);
        if (found && found[strlen(token)] == ' ')
            return found + strlen(token) + 1;
    }
    return NULL;
}

static int take_messages(struct bash *b, struct buf *from, int *ret_status, bool *ret_state)
{
    int found = 0;
    size_t at = 0;
    char *message;
    while ((message = next_message(from, &at, b->token))) {
        if (message[0] == 'R') {
            found++;
            char *rest;
            *ret_status = (int)strtol(message + 1, &rest, 10);
            (void)snprintf(b->flags, sizeof(b->flags), "%s", rest);
        } else if (message[0] == 'S' && message[1] == '\n') {
            buf_clear(&b->state);
            *ret_state = buf_append_str(&b->state, message + 2) == 0;
        }
    }
    from->len -= at;
    if (at > 0)
        memmove(from->data, from->data + at, from->len);
    return found;
}

/* Reads what is there, up to a bound: user code can write here too, without end. A state that
 * does not fit is dropped. */
static int read_pipe(struct bash *b, struct buf *into, int fd, int *ret_status, bool *ret_state)
{
    int found = 0;
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t n = buf_read_fd(into, fd, 65536);
        if (n == -EMSGSIZE) {
            char rest[65536];
            n = read(fd, rest, sizeof(rest));
            buf_clear(&b->state);
            if (n > 0 && rest[n - 1] == '\0')
                buf_clear(into);
        }
        if (n <= 0)
            return found;
        found += take_messages(b, into, ret_status, ret_state);
    }
    return found;
}

int bash_read_report(struct bash *b, int *ret_status)
{
    bool state;
    return read_pipe(b, &b->report, b->report_read, ret_status, &state);
}

bool bash_read_last_words(struct bash *b)
{
    int status = 0;
    (void)read_pipe(b, &b->last_words, b->exit_read, &status, &b->left_state);
    return b->left_state;
}
