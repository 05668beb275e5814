/* SPDX-License-Identifier: Apache-2.0 */

/* See repl.h. libedit reads lines. Ctrl-C while code runs becomes a call of .../interrupt from
 * another thread, because the main thread waits for the stream. */

#include "cli/session/repl.h"

#include "cli/session/show.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <editline/readline.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* CODE_MAX is in bytes, the server's limit. */
enum { CODE_MAX = 16 << 20, HISTORY_LINES = 2000, PATH_ROOM = 4096 };

static const struct {
    const char *language;
    const char *prompt;
    const char *more;
} prompts[] = {{"python", ">>> ", "... "}, {"javascript", "> ", "... "}, {"bash", "$ ", "> "}};

struct interrupter {
    const struct client *client;
    char *path;
    atomic_bool is_running; /* code is running */
    atomic_bool is_over;
};

/* Waits for SIGINT, which is blocked in every thread, and interrupts the session. */
static void *pass_signals(void *arg)
{
    struct interrupter *in = arg;
    sigset_t set;
    int signal;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    while (sigwait(&set, &signal) == 0 && !in->is_over) {
        struct err err = {0};
        json_t *answer = NULL;
        if (in->is_running)
            (void)client_call(in->client, "POST", in->path, NULL, &answer, &err);
        json_decref(answer);
    }
    return NULL;
}

/* Whether the code is incomplete: open brackets outside strings, or an ending that needs more.
 * This is a guess; an empty line always ends the piece. */
static bool is_open(const char *language, const char *code)
{
    int depth = 0;
    char quote = '\0';
    size_t len = strlen(code);
    for (const char *p = code; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (quote) {
            quote = *p == quote || *p == '\n' ? '\0' : quote;
        } else if (*p == '"' || *p == '\'') {
            quote = *p;
        } else {
            depth += *p == '(' || *p == '[' || *p == '{';
            depth -= *p == ')' || *p == ']' || *p == '}';
        }
    }
    if (depth > 0 || (len && code[len - 1] == '\\'))
        return true;
    return str_eq(language, "python") && len && (strchr(code, '\n') || code[len - 1] == ':');
}

/* Reads one piece of code into `to`. False at the end of the input. */
static bool read_piece(
    const char *language, const char *prompt, const char *more, struct buf *to)
{
    buf_clear(to);
    for (;;) {
        char *line = readline(to->len ? more : prompt);
        if (!line)
            return to->len > 0;
        bool is_last = to->len && !line[0];
        if (to->len)
            (void)buf_append_str(to, "\n");
        (void)buf_append_str(to, line);
        if (line[0])
            (void)add_history(line);
        free(line);
        if (is_last || !is_open(language, to->data ? to->data : ""))
            return true;
    }
}

/* $XDG_STATE_HOME/hermes/LANGUAGE.history; NULL without a home directory. The caller frees it.
 */
static char *history_path(const char *language)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    cleanup_free char *base = state && *state ? xstrdup(state)
                              : home          ? xasprintf("%s/.local/state", home)
                                              : NULL;
    if (!base)
        return NULL;
    cleanup_free char *dir = xasprintf("%s/hermes", base);
    for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(dir, 0700);
        *slash = '/';
    }
    (void)mkdir(dir, 0700);
    return xasprintf("%s/%s.history", dir, language);
}

/* Runs `body`, which contains the code. */
static int run_body(struct interrupter *in, const char *path, const json_t *body,
    struct show *show, struct err *err)
{
    in->is_running = true;
    int r = client_stream(in->client, path, body, show_event, show, err);
    in->is_running = false;
    return r;
}

static int run_piece(struct interrupter *in, const char *path, const json_t *exec,
    const struct buf *code, struct show *show, struct err *err)
{
    json_t *text = json_stringn(code->data ? code->data : "", code->len);
    if (!text)
        return err_set(err, ERR_INVALID, EINVAL, "this is no UTF-8");
    json_t *body = json_copy((json_t *)exec);
    (void)json_object_set_new(body, "code", text);
    int r = run_body(in, path, body, show, err);
    json_decref(body);
    return r;
}

/* Runs everything on stdin as one piece. */
static int run_input(
    struct interrupter *in, const char *path, const json_t *exec, struct err *err)
{
    cleanup_buf struct buf code;
    struct show show = {0};
    ssize_t n;
    buf_init(&code, CODE_MAX);
    while ((n = buf_read_fd(&code, STDIN_FILENO, 1 << 16)) > 0)
        ;
    if (n < 0)
        return err_set(err, ERR_INVALID, (int)-n, "cannot read stdin: %s", strerror((int)-n));
    int r = run_piece(in, path, exec, &code, &show, err);
    return r < 0 ? r : show.exit_status;
}

/* Keeps a Ctrl-D that is typed while code runs for the next prompt. Otherwise the terminal
 * turns it into an end of file, which libedit reads as a NUL. */
static bool keep_end_of_file(struct termios *ret_before)
{
    if (tcgetattr(STDIN_FILENO, ret_before) < 0)
        return false;
    struct termios plain = *ret_before;
    plain.c_cc[VEOF] = _POSIX_VDISABLE;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &plain) == 0;
}

static int talk(struct interrupter *in, const char *language, const char *path,
    const json_t *exec, struct err *err)
{
    size_t kind = 0;
    int r = 0;
    cleanup_free char *history = history_path(language);
    cleanup_buf struct buf code;
    buf_init(&code, CODE_MAX);
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++)
        kind = str_eq(prompts[i].language, language) ? i : kind;
    struct termios before;
    bool is_changed = keep_end_of_file(&before);
    rl_initialize();
    if (history)
        (void)read_history(history);
    stifle_history(HISTORY_LINES);
    while (r == 0 && read_piece(language, prompts[kind].prompt, prompts[kind].more, &code)) {
        struct show show = {0};
        struct err problem = {0};
        if (!code.len)
            continue;
        r = run_piece(in, path, exec, &code, &show, &problem);
        if (r < 0 && problem.code == ERR_CONFLICT) {
            (void)fprintf(stderr, "hermes: %s\n", problem.message);
            r = 0;
        } else if (r < 0) {
            *err = problem;
        }
    }
    (void)printf("\n");
    if (is_changed)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    if (history)
        (void)write_history(history);
    return r;
}

/* Blocks SIGINT and starts the thread that passes it on to the session. */
static int pass_begin(struct interrupter *in, const struct client *client, const char *id,
    pthread_t *ret_thread, struct err *err)
{
    sigset_t set;
    *in = (struct interrupter){.client = client, .path = client_path(id, "/interrupt", err)};
    if (!in->path)
        return -EINVAL;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(ret_thread, NULL, pass_signals, in) == 0)
        return 0;
    free(take_ptr(in->path));
    return err_set(err, ERR_UNAVAILABLE, EAGAIN, "there is no thread for Ctrl-C");
}

static void pass_end(struct interrupter *in, pthread_t thread)
{
    in->is_over = true;
    (void)pthread_kill(thread, SIGINT);
    (void)pthread_join(thread, NULL);
    free(in->path);
}

int repl_exec(const struct client *client, const char *id, const json_t *exec,
    struct show *show, struct err *err)
{
    cleanup_free char *path = client_path(id, "/exec", err);
    struct interrupter in;
    pthread_t thread;
    int r = path ? pass_begin(&in, client, id, &thread, err) : -EINVAL;
    if (r < 0)
        return r;
    r = run_body(&in, path, exec, show, err);
    pass_end(&in, thread);
    return r;
}

int repl_run(
    const struct client *client, const json_t *session, const json_t *exec, struct err *err)
{
    const char *id = json_string_value(json_object_get(session, "id"));
    const char *language = json_string_value(json_object_get(session, "language"));
    cleanup_free char *path = client_path(id ? id : "", "/exec", err);
    struct interrupter in;
    pthread_t thread;
    int r = path && language ? pass_begin(&in, client, id, &thread, err) : -EINVAL;
    if (r < 0)
        return r;
    r = isatty(STDIN_FILENO) ? talk(&in, language, path, exec, err)
                             : run_input(&in, path, exec, err);
    pass_end(&in, thread);
    return r;
}
