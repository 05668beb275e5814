/* SPDX-License-Identifier: Apache-2.0 */

/* See consent.h. A thread follows the server's questions and answers them one by one, by the
 * routes that every approver uses. */

#include "cli/session/consent.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/thread.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

enum { SHOWN_MAX = 4000, LINE_MAX_BYTES = 256, END_OF_FILE = 4 };

/* Answers of a person. Anything else is no. */
static const struct {
    const char *word, *decision, *scope;
} answers[] = {
    {"y", "approve", "once"},
    {"yes", "approve", "once"},
    {"s", "approve", "session"},
    {"session", "approve", "session"},
    {"n", "deny", "once"},
};
enum { YES = 0, NO = 4 };

/* A text that could not be parsed into commands is shown whole. */
static void show_text(FILE *to, const json_t *approval)
{
    const json_t *effect = json_object_get(approval, "effect");
    const char *text = json_string_value(json_object_get(effect, "text"));
    while (text && *text) {
        (void)fprintf(to, "\n    ");
        output_clean_to(to, text, SIZE_MAX);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
}

/* A word that is known is in quotes where a shell needs them: `$x` without them is a variable.
 * Redirections begin with their operator. */
static char *word_of(const json_t *one, const char *member)
{
    const char *text = json_string_value(one);
    const char *source = json_string_value(json_object_get(one, "dynamic"));
    bool is_bare = str_eq(member, "redirections") ||
                   (str_eq(member, "grant") && str_eq(text, "*")); /* any words */
    if (text && !is_bare)
        return str_shell_word(text);
    source = source ? source : "";
    return xstrdup(text ? text : source);
}

/* The words of a list, whole up to SHOWN_MAX bytes. */
static void show_words(FILE *to, const json_t *approval, const char *member, const char *head)
{
    const json_t *words = json_object_get(json_object_get(approval, "effect"), member);
    size_t room = SHOWN_MAX;
    size_t rest = 0;
    if (json_array_size(words))
        (void)fprintf(to, "\n    %s:", head);
    for (size_t i = 0; i < json_array_size(words); i++) {
        cleanup_free char *line = word_of(json_array_get(words, i), member);
        for (char *at = line; (at = strchr(at, '\n'));)
            *at = '\t'; /* shown as ?, not as the end of the word */
        size_t len = strlen(line);
        size_t part = len > room ? utf8_floor(line, room) : len;
        rest += len - part;
        room -= part;
        line[part] = '\0';
        (void)fputc(' ', to);
        output_clean_to(to, line, SIZE_MAX);
    }
    const char *id = json_string_value(json_object_get(approval, "id"));
    if (rest)
        (void)fprintf(
            to, " ... (%zu more bytes: hermes approvals show %s)", rest, id ? id : "");
}

static void show_directory(FILE *to, const json_t *approval)
{
    const char *cwd =
        json_string_value(json_object_get(json_object_get(approval, "effect"), "cwd"));
    if (!cwd || !*cwd)
        return;
    (void)fprintf(to, "\n    in: ");
    output_clean_to(to, cwd, SIZE_MAX);
}

static void show_question(const struct consent *c, const json_t *approval)
{
    const char *summary = json_string_value(json_object_get(approval, "summary"));
    FILE *to = fdopen(dup(c->terminal), "w");
    if (!to)
        return;
    (void)fprintf(to, "%s: this runs outside of a box: ", c->command);
    output_clean_to(to, summary ? summary : "?", SHOWN_MAX);
    const json_t *effect = json_object_get(approval, "effect");
    show_words(to, approval, "argv", "command");
    if (!json_equal(json_object_get(effect, "argv"), json_object_get(effect, "grant")))
        show_words(to, approval, "grant", "for this session");
    show_words(to, approval, "redirections", "opens");
    show_words(to, approval, "files", "writes");
    show_directory(to, approval);
    show_text(to, approval);
    (void)fprintf(to, "\nAllow it? [y] once  [s] for this session  [n] no: ");
    (void)fclose(to);
}

/* One line of the terminal; false when it, the command or the asker ends before. */
static bool read_line(const struct consent *c, char *line, size_t size)
{
    size_t len = 0;
    (void)tcflush(
        c->terminal, TCIFLUSH); /* discards keys that were typed before the question */
    for (;;) {
        struct pollfd fds[] = {
            {c->terminal, POLLIN, 0}, {c->over[0], POLLIN, 0}, {c->settled, POLLIN, 0}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return false;
        if (fds[1].revents || fds[2].revents)
            return false;
        char byte;
        ssize_t n = fds[0].revents ? read(c->terminal, &byte, 1) : -1;
        if (n == 0 || (n < 0 && fds[0].revents && errno != EINTR && errno != EAGAIN))
            return false;
        if (n > 0 && byte == END_OF_FILE)
            return false;
        if (n > 0 && byte == '\n') {
            line[len] = '\0';
            return true;
        }
        if (n > 0 && len < size - 1)
            line[len++] = byte;
    }
}

static size_t ask(const struct consent *c, const json_t *approval)
{
    char line[LINE_MAX_BYTES];
    show_question(c, approval);
    if (!read_line(c, line, sizeof(line)))
        return NO;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (str_eq(answers[i].word, line))
            return i;
    return NO;
}

/* Whether the asker still waits. Otherwise the terminal belongs to the command. */
static bool is_pending(const struct consent *c, const char *path)
{
    struct err ignored = {0};
    json_t *now = NULL;
    (void)client_call(c->client, "GET", path, NULL, &now, &ignored);
    bool is = str_eq(json_string_value(json_object_get(now, "state")), "pending");
    json_decref(now);
    return is;
}

static void begin_asking(struct consent *c)
{
    uint64_t old;
    (void)pthread_mutex_lock(&c->lock);
    ssize_t n = read(c->settled, &old, sizeof(old));
    (void)n;
    c->is_asking = true;
    (void)pthread_mutex_unlock(&c->lock);
}

static void end_asking(struct consent *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->is_asking = false;
    (void)pthread_cond_broadcast(&c->change);
    (void)pthread_mutex_unlock(&c->lock);
}

static void send_decision(struct consent *c, const char *path, size_t i)
{
    struct err failed = {0}; /* not shown: if the answer came too late, the command fails and
                                 prints its own error */
    json_t *answer = NULL;
    json_t *body = json_pack("{s:s,s:s,s:s}", "decision", answers[i].decision, "scope",
        answers[i].scope, "comment", c->is_given ? "--yes" : "at the terminal");
    int r = client_call(c->client, "POST", path, body, &answer, &failed);
    json_decref(answer);
    json_decref(body);
    /* Some effects can be approved once only, which the question does not know. */
    if (r < 0 && failed.code == ERR_INVALID && str_eq(answers[i].scope, "session")) {
        (void)dprintf(c->terminal, "%s: allowed once: this cannot be allowed for the session\n",
            c->command);
        send_decision(c, path, YES);
    }
}

static void decide(struct consent *c, const json_t *approval)
{
    const char *id = json_string_value(json_object_get(approval, "id"));
    if (!id)
        return;
    cleanup_free char *escaped = client_escape(id);
    cleanup_free char *path = xasprintf("/v1/approvals/%s", escaped);
    if (c->is_given) {
        send_decision(c, path, YES);
        return;
    }
    begin_asking(c);
    if (is_pending(c, path))
        send_decision(c, path, ask(c, approval));
    end_asking(c);
}

static void note(struct consent *c, bool *what)
{
    (void)pthread_mutex_lock(&c->lock);
    *what = true;
    (void)pthread_cond_broadcast(&c->change);
    (void)pthread_mutex_unlock(&c->lock);
}

static void on_event(void *context, const char *name, const json_t *data)
{
    struct consent *c = context;
    if (!name)
        note(c, &c->is_listening);
    else if (str_eq(json_string_value(json_object_get(data, "state")), "pending"))
        decide(c, data);
}

static void *follow(void *arg)
{
    struct consent *c = arg;
    struct err ignored = {0};
    (void)client_follow(c->client, "/v1/approvals/events", on_event, c, &ignored);
    note(c, &c->has_ended);
    return NULL;
}

/* Signals are for the command's own threads. */
static int start_thread(struct consent *c)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = thread_start(&c->thread, follow, c);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int consent_start(struct consent *c, const struct client *client, const char *command,
    bool is_given, struct err *err)
{
    *c = (struct consent){.client = client,
        .command = command,
        .is_given = is_given,
        .over = {-1, -1},
        .settled = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->change, NULL);
    c->terminal = is_given ? -1 : open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (c->terminal < 0 && !is_given)
        return 0;
    int r = c->settled < 0 || pipe2(c->over, O_CLOEXEC) < 0 ? -errno : start_thread(c);
    if (r < 0)
        return err_set(
            err, err_code_of(-r), -r, "cannot start a thread for questions: %s", strerror(-r));
    c->has_thread = true;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->is_listening && !c->has_ended)
        (void)pthread_cond_wait(&c->change, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
    return 0;
}

void consent_settle(struct consent *c)
{
    const uint64_t one = 1;
    (void)pthread_mutex_lock(&c->lock);
    ssize_t n = c->is_asking ? write(c->settled, &one, sizeof(one)) : 0;
    (void)n;
    while (c->is_asking)
        (void)pthread_cond_wait(&c->change, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}

void consent_stop(struct consent *c)
{
    close_fd(&c->over[1]);
    if (c->has_thread)
        (void)pthread_join(c->thread, NULL);
    close_fd(&c->over[0]);
    close_fd(&c->terminal);
    close_fd(&c->settled);
    (void)pthread_cond_destroy(&c->change);
    (void)pthread_mutex_destroy(&c->lock);
}

void consent_explain(struct err *err)
{
    if (err->code == ERR_APPROVAL_UNAVAILABLE)
        (void)err_set(err, ERR_APPROVAL_UNAVAILABLE, err->errnum,
            "this runs outside of a box, and there is no terminal to ask you at; say --yes, or "
            "name what is allowed with --rules FILE");
}
