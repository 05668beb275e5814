/* SPDX-License-Identifier: Apache-2.0 */

/* See repl.h. libedit reads lines. */

#include "cli/session/repl.h"

#include "cli/color.h"
#include "cli/output.h"
#include "cli/session/interrupt.h"
#include "cli/session/show.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <editline/readline.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* CODE_MAX is in bytes, the server's limit. */
enum { CODE_MAX = 16 << 20, HISTORY_LINES = 2000, PATH_ROOM = 4096, END_OF_FILE = 4 };

static const struct {
    const char *language;
    const char *prompt;
    const char *more;
} prompts[] = {{"python", ">>> ", "... "}, {"javascript", "> ", "... "}, {"bash", "$ ", "> "}};

/* A conversation with one session. */
struct repl {
    struct interrupter interrupter;
    const struct client *client;
    const json_t *session;
    const json_t *exec; /* fields of every request */
    const char *language;
    struct consent *consent; /* of the caller, at this terminal; or NULL */
    char *exec_path, *interrupt_path;
    char *end_path; /* of the session, when it ends with the prompt; else NULL */
    struct termios before;
    bool is_changed; /* the terminal has to be restored from `before` */
};

/* The terminal was closed, or the program is to end. */
static void leave(void *context)
{
    const struct repl *repl = context;
    struct err ignored = {0};
    json_t *answer = NULL;
    if (repl->is_changed)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &repl->before);
    if (repl->end_path)
        (void)client_call(repl->client, "DELETE", repl->end_path, NULL, &answer, &ignored);
    json_decref(answer);
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
static int run_body(struct repl *repl, const json_t *body, struct show *show, struct err *err)
{
    interrupt_begin(&repl->interrupter, "POST", repl->interrupt_path);
    int r = client_stream(repl->client, repl->exec_path, body, show_event, show, err);
    interrupt_end(&repl->interrupter);
    return r;
}

static int run_piece(
    struct repl *repl, const struct buf *code, struct show *show, struct err *err)
{
    json_t *text = json_stringn(code->data ? code->data : "", code->len);
    if (!text)
        return err_set(err, ERR_INVALID, EINVAL, "the code is not valid UTF-8");
    json_t *body = json_copy((json_t *)repl->exec);
    (void)json_object_set_new(body, "code", text);
    int r = run_body(repl, body, show, err);
    if (repl->consent) {
        consent_settle(repl->consent);
        consent_explain(err);
    }
    json_decref(body);
    return r;
}

/* Runs everything on stdin as one piece. */
static int run_input(struct repl *repl, struct err *err)
{
    cleanup_buf struct buf code;
    struct show show = {0};
    ssize_t n;
    buf_init(&code, CODE_MAX);
    while ((n = buf_read_fd(&code, STDIN_FILENO, 1 << 16)) > 0)
        ;
    if (n < 0)
        return err_set(err, ERR_INVALID, (int)-n, "cannot read stdin: %s", strerror((int)-n));
    int r = run_piece(repl, &code, &show, err);
    return r < 0 ? r : show.exit_status;
}

/* Keeps a Ctrl-D that is typed while code runs for the next prompt, or for a question, which it
 * ends like a line. Otherwise the terminal turns it into an end of file, which libedit reads as
 * a NUL. */
static bool keep_end_of_file(struct termios *ret_before)
{
    if (tcgetattr(STDIN_FILENO, ret_before) < 0)
        return false;
    struct termios plain = *ret_before;
    plain.c_cc[VEOF] = _POSIX_VDISABLE;
    plain.c_cc[VEOL] = END_OF_FILE;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &plain) == 0;
}

/* The version of the session's language on the server; "" when the server does not say. */
static char *find_version(const struct repl *repl)
{
    struct err ignored = {0};
    json_t *answer = NULL;
    char *version = NULL;
    (void)client_call(repl->client, "GET", "/v1/runtimes", NULL, &answer, &ignored);
    const json_t *list = json_object_get(answer, "runtimes");
    for (size_t i = 0; i < json_array_size(list) && !version; i++) {
        const json_t *one = json_array_get(list, i);
        const char *text = json_string_value(json_object_get(one, "version"));
        if (text && str_eq(json_string_value(json_object_get(one, "name")), repl->language))
            version = xasprintf(" %s", text);
    }
    json_decref(answer);
    return version ? version : xstrdup("");
}

static void greet(const struct repl *repl)
{
    cleanup_free char *version = find_version(repl);
    const char *id = json_string_value(json_object_get(repl->session, "id"));
    (void)printf("%s%s%s%s in session %s. Ctrl-C interrupts, Ctrl-D or `exit` leaves%s.\n",
        color_on(stdout, COLOR_STRONG), repl->language, version, color_off(stdout), id,
        repl->end_path ? " and ends the session" : "");
}

/* Whether the piece asks to leave the prompt. */
static bool is_farewell(const struct buf *code)
{
    static const char *const words[] = {"exit", "quit", "exit()", "quit()", ".exit"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (str_eq(code->data, words[i]))
            return true;
    }
    return false;
}

/* Whether the piece was refused and the session is as before. */
static bool is_refusal(enum err_code code)
{
    static const enum err_code codes[] = {
        ERR_CONFLICT, ERR_INVALID, ERR_DENIED, ERR_APPROVAL_UNAVAILABLE};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* Runs one piece of code. A refused piece does not end the prompt. */
static int run_typed(struct repl *repl, const struct buf *code, struct err *err)
{
    struct show show = {0};
    int r = run_piece(repl, code, &show, err);
    if (r < 0 && is_refusal(err->code)) {
        output_error_line("hermes", err);
        *err = (struct err){0};
        return 0;
    }
    return r;
}

static int talk(struct repl *repl, struct err *err)
{
    size_t kind = 0;
    int r = 0;
    cleanup_free char *history = history_path(repl->language);
    cleanup_buf struct buf code;
    buf_init(&code, CODE_MAX);
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++)
        kind = str_eq(prompts[i].language, repl->language) ? i : kind;
    greet(repl);
    repl->is_changed = keep_end_of_file(&repl->before);
    rl_initialize();
    if (history)
        (void)read_history(history);
    stifle_history(HISTORY_LINES);
    while (r == 0 &&
           read_piece(repl->language, prompts[kind].prompt, prompts[kind].more, &code) &&
           !is_farewell(&code))
        r = code.len ? run_typed(repl, &code, err) : 0;
    (void)printf("\n");
    if (repl->is_changed)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &repl->before);
    repl->is_changed = false;
    if (history)
        (void)write_history(history);
    return r;
}

/* Takes the paths of the session and the signals. */
static int repl_begin(
    struct repl *repl, const struct client *client, const char *id, struct err *err)
{
    repl->client = client;
    repl->interrupter = (struct interrupter){.leave = leave, .context = repl};
    repl->exec_path = client_path(id, "/exec", err);
    repl->interrupt_path = client_path(id, "/interrupt", err);
    if (!repl->exec_path || !repl->interrupt_path)
        return -EINVAL;
    return interrupt_start(&repl->interrupter, client, err);
}

static void repl_done(struct repl *repl)
{
    free(repl->exec_path);
    free(repl->interrupt_path);
    free(repl->end_path);
}

int repl_exec(const struct client *client, const char *id, const json_t *exec,
    struct show *show, struct err *err)
{
    CLEANUP(repl_done) struct repl repl = {0};
    int r = repl_begin(&repl, client, id, err);
    if (r < 0)
        return r;
    r = run_body(&repl, exec, show, err);
    interrupt_stop(&repl.interrupter);
    return r;
}

int repl_run(const struct client *client, const json_t *session, const json_t *exec,
    bool ends_session, struct consent *consent, struct err *err)
{
    const char *id = json_string_value(json_object_get(session, "id"));
    const char *language = json_string_value(json_object_get(session, "language"));
    CLEANUP(repl_done)
    struct repl repl = {.session = session,
        .exec = exec,
        .language = language ? language : "",
        .consent = consent};
    if (ends_session)
        repl.end_path = client_path(id ? id : "", "", err);
    int r = repl_begin(&repl, client, id ? id : "", err);
    if (r < 0)
        return r;
    r = isatty(STDIN_FILENO) ? talk(&repl, err) : run_input(&repl, err);
    interrupt_stop(&repl.interrupter);
    return r;
}
