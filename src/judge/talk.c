/* SPDX-License-Identifier: Apache-2.0 */

/* Runs solution and interactor, each in its own box, joined by two pipes. Without a transcript
 * the boxes hold the ends of the same pipes, so a round trip costs what it costs two processes
 * of the host. With a transcript, a thread of ours copies every byte, in both directions. It
 * reads only when it has written, so it buffers no more than a pipe.
 *
 * A box is not killed by SIGPIPE when the other one leaves: the reading ends stay open here,
 * and output that arrives later is discarded. The remaining program reads the end of its input
 * and ends by its own decision. The order of the ends decides which one is to blame
 * (docs/judging.md). */

#include "judge/test.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK = 65536,    /* bytes of one read */
    SILENCE_MS = 100, /* milliseconds between two checks of watch_silence() */
    SILENCES = 3,     /* checks without input for the solution until its stdin may end */
    WORD_COST = 32,   /* bytes of a message's record */
};

/* One direction. Without a transcript both boxes hold ends of one pipe, and `read_fd` is kept
 * only to drain it. With a transcript, `write_fd` leads to a second pipe. */
struct way {
    bool from_solution;
    int read_fd;
    int write_fd;
    char *chunk;
    size_t at, len;
};

struct talk {
    const struct judge_bench *bench;
    struct judge_test_result *result;
    size_t kept;
    struct way ways[2];     /* [0]: from the solution */
    int box_fds[2][2];      /* stdin and stdout of the solution, and of the interactor */
    int solution_cancel_fd; /* eventfd */
    pthread_mutex_t lock;
    int held_fd;    /* writing end that keeps the solution's stdin from ending, or -1 */
    bool was_quiet; /* held_fd was closed by watch_silence() */
    int over_fd;    /* eventfd: both programs have ended */
    struct run_variant solution_variant;
    int solution_r;
    struct err solution_err;
};

static int open_way(struct talk *talk, bool from_solution, bool pumped)
{
    int near[2];
    int far[2];
    struct way *way = &talk->ways[from_solution ? 0 : 1];
    int *writer = &talk->box_fds[from_solution ? 0 : 1][1];
    int *reader = &talk->box_fds[from_solution ? 1 : 0][0];
    way->from_solution = from_solution;
    if (pipe2(near, O_CLOEXEC) < 0)
        return -errno;
    *writer = near[1];
    way->read_fd = near[0];
    /* A box may open its end by name (/dev/stdin), for which the kernel checks the mode. */
    (void)fchmod(near[0], 0666);
    if (!from_solution && !pumped && (talk->held_fd = fcntl(near[1], F_DUPFD_CLOEXEC, 3)) < 0)
        return -errno;
    if (!pumped) {
        *reader = fcntl(near[0], F_DUPFD_CLOEXEC, 3);
        return *reader < 0 ? -errno : 0;
    }
    if (pipe2(far, O_CLOEXEC) < 0)
        return -errno;
    *reader = far[0];
    way->write_fd = far[1];
    way->chunk = xmalloc(CHUNK);
    if (!from_solution && (talk->held_fd = fcntl(far[1], F_DUPFD_CLOEXEC, 3)) < 0)
        return -errno;
    bool ready = fcntl(way->read_fd, F_SETFL, O_NONBLOCK) == 0 &&
                 fcntl(way->write_fd, F_SETFL, O_NONBLOCK) == 0;
    return ready ? 0 : -errno;
}

static void close_all(struct talk *talk)
{
    for (size_t i = 0; i < 2; i++) {
        close_fd(&talk->ways[i].read_fd);
        close_fd(&talk->ways[i].write_fd);
        close_fd(&talk->box_fds[i][0]);
        close_fd(&talk->box_fds[i][1]);
        free(talk->ways[i].chunk);
    }
    close_fd(&talk->solution_cancel_fd);
    close_fd(&talk->held_fd);
    close_fd(&talk->over_fd);
}

static void record(struct talk *talk, const struct way *way)
{
    struct judge_test_result *result = talk->result;
    struct judge_talk *last = result->talk_count ? &result->talk[result->talk_count - 1] : NULL;
    size_t len = way->len;
    if (talk->kept + len > JUDGE_KEPT_TALK) {
        len = JUDGE_KEPT_TALK - talk->kept;
        result->talk_truncated = true;
    }
    struct buf_purse *purse = talk->bench->purse;
    if (purse && len && !purse->take(purse, len + sizeof(*last) + WORD_COST)) {
        result->talk_truncated = true;
        len = 0;
    }
    if (len == 0)
        return;
    if (!last || last->from_solution != way->from_solution) {
        result->talk =
            xreallocarray(result->talk, result->talk_count + 1, sizeof(*result->talk));
        last = &result->talk[result->talk_count++];
        *last = (struct judge_talk){.from_solution = way->from_solution};
    }
    last->data = xreallocarray(last->data, last->len + len, 1);
    memcpy(last->data + last->len, way->chunk, len);
    last->len += len;
    talk->kept += len;
}

/* Moves bytes as far as possible without waiting. */
static void move(
    struct talk *talk, struct way *way, const struct pollfd *in, const struct pollfd *out)
{
    if (in->revents) {
        ssize_t n = read(way->read_fd, way->chunk, CHUNK);
        if (n > 0) {
            way->at = 0;
            way->len = (size_t)n;
            record(talk, way);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close_fd(&way->read_fd);
        }
    }
    if (way->at < way->len && (out->revents || in->revents)) {
        ssize_t n = way->write_fd < 0
                        ? (ssize_t)(way->len - way->at)
                        : write(way->write_fd, way->chunk + way->at, way->len - way->at);
        if (n > 0)
            way->at += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            close_fd(&way->write_fd); /* the reader has closed its end */
    }
    if (way->write_fd < 0)
        way->at = way->len;
    if (way->read_fd < 0 && way->at == way->len)
        close_fd(&way->write_fd);
}

/* Runs until both directions have ended, which happens when the writing boxes end. */
static void *pump(void *arg)
{
    struct talk *talk = arg;
    struct way *w = talk->ways;
    while (w[0].read_fd >= 0 || w[1].read_fd >= 0 || w[0].at < w[0].len || w[1].at < w[1].len) {
        struct pollfd fds[4];
        for (size_t i = 0; i < 2; i++) {
            bool empty = w[i].at == w[i].len;
            fds[2 * i] = (struct pollfd){empty ? w[i].read_fd : -1, POLLIN, 0};
            fds[2 * i + 1] = (struct pollfd){empty ? -1 : w[i].write_fd, POLLOUT, 0};
        }
        if (poll(fds, 4, -1) < 0)
            continue;
        move(talk, &w[0], &fds[0], &fds[1]);
        move(talk, &w[1], &fds[2], &fds[3]);
    }
    return NULL;
}

/* Discards output for a box that has ended. */
static void drain(const struct way *way)
{
    char waste[4096];
    ssize_t n;
    while (!way->chunk &&
           ((n = read(way->read_fd, waste, sizeof(waste))) > 0 || (n < 0 && errno == EINTR)))
        ;
}

/* After this, the end of the interactor's output is the end of the solution's input. */
static void let_go(struct talk *talk)
{
    (void)pthread_mutex_lock(&talk->lock);
    close_fd(&talk->held_fd);
    (void)pthread_mutex_unlock(&talk->lock);
}

/* Closes held_fd when nothing was sent to the solution for SILENCES * SILENCE_MS. */
static void *watch_silence(void *arg)
{
    struct talk *talk = arg;
    struct pollfd over = {.fd = talk->over_fd, .events = POLLIN};
    int silences = 0;
    while (poll(&over, 1, SILENCE_MS) == 0) {
        int waiting = 1;
        (void)pthread_mutex_lock(&talk->lock);
        if (talk->held_fd >= 0 && ioctl(talk->held_fd, FIONREAD, &waiting) < 0)
            waiting = 0;
        silences = waiting ? 0 : silences + 1;
        if (silences == SILENCES) {
            talk->was_quiet = true;
            close_fd(&talk->held_fd);
        }
        (void)pthread_mutex_unlock(&talk->lock);
    }
    return NULL;
}

static void *run_solution(void *arg)
{
    struct talk *talk = arg;
    const struct run_watch watch = {
        .cancel_fd = talk->solution_cancel_fd, .purse = talk->bench->purse};
    talk->solution_r = engine_execute(talk->bench->programs.solution, &talk->solution_variant,
        &watch, &talk->result->run, &talk->solution_err);
    let_go(talk);
    drain(&talk->ways[1]);
    return NULL;
}

static bool has_accepted(int r, const struct stage_result *stage)
{
    return r == 0 && stage->exited && (stage->exit_code == 0 || stage->exit_code == 7);
}

static void raise_event(int fd)
{
    const uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n; /* an eventfd that was never written to takes a 1 */
}

/* The threads besides the interactor's, in the order in which they are started. */
enum { THREAD_SILENCE, THREAD_PUMP, THREAD_SOLUTION, THREADS };

static int start_others(struct talk *talk, pthread_t threads[THREADS], struct err *err)
{
    static void *(*const functions[THREADS])(void *) = {[THREAD_SILENCE] = watch_silence,
        [THREAD_PUMP] = pump,
        [THREAD_SOLUTION] = run_solution};
    bool pumped = talk->ways[0].chunk;
    int started = 0;
    int r = 0;
    for (; r == 0 && started < THREADS; started++) {
        if (started != THREAD_PUMP || pumped)
            r = thread_start(&threads[started], functions[started], talk);
    }
    if (r == 0)
        return 0;
    for (size_t i = 0; i < 2; i++) { /* no writer is left, so the pump ends */
        close_fd(&talk->box_fds[i][0]);
        close_fd(&talk->box_fds[i][1]);
    }
    raise_event(talk->over_fd);
    for (int i = 0; i < started - 1; i++) {
        if (i != THREAD_PUMP || pumped)
            (void)pthread_join(threads[i], NULL);
    }
    return err_set(
        err, ERR_UNAVAILABLE, -r, "there is no thread left for this test; try again later");
}

/* Runs the interactor on this thread and the solution on a thread of its own. The engine takes
 * the boxes' ends of the pipes. */
static int run_both(struct talk *talk, struct run_variant *interactor_variant,
    struct run_result *interactor, struct err *err)
{
    const struct run_watch watch = {
        .cancel_fd = talk->bench->cancel_fd, .purse = talk->bench->purse};
    pthread_t threads[THREADS];
    talk->solution_variant.box_stdin_fd = talk->box_fds[0][0];
    talk->solution_variant.box_stdout_fd = talk->box_fds[0][1];
    interactor_variant->box_stdin_fd = talk->box_fds[1][0];
    interactor_variant->box_stdout_fd = talk->box_fds[1][1];
    int r = start_others(talk, threads, err);
    if (r < 0)
        return r;
    memset(talk->box_fds, -1, sizeof(talk->box_fds));
    r = engine_execute(
        talk->bench->programs.interactor, interactor_variant, &watch, interactor, err);
    if (has_accepted(r, &interactor->run))
        let_go(talk);
    else
        raise_event(talk->solution_cancel_fd);
    drain(&talk->ways[0]);
    (void)pthread_join(threads[THREAD_SOLUTION], NULL);
    raise_event(talk->over_fd);
    (void)pthread_join(threads[THREAD_SILENCE], NULL);
    if (talk->ways[0].chunk)
        (void)pthread_join(threads[THREAD_PUMP], NULL);
    if (r < 0)
        return err_wrap(err, r, "interactor");
    if (talk->solution_r < 0)
        *err = talk->solution_err;
    return talk->solution_r;
}

static bool is_limit(enum run_status status)
{
    return status == RUN_TIME_LIMIT || status == RUN_MEMORY_LIMIT || status == RUN_OUTPUT_LIMIT;
}

/* The rules. A solution that reached a limit is to blame. An interactor that failed says
 * nothing about the solution, which may have failed because of it. A solution that failed
 * before the interactor ended, or after the interactor accepted, is to blame. Otherwise the
 * interactor decides. A solution that the interactor rejected was cancelled and has reached no
 * limit. */
static void blame(const struct talk *talk, const struct judge_test *test,
    const struct stage_result *interactor)
{
    struct judge_test_result *result = talk->result;
    const struct stage_result *solution = &result->run.run;
    bool solution_first = !talk->was_quiet || solution->ended_ns <= interactor->ended_ns;
    bool failed = solution->status != RUN_OK && solution->status != RUN_CANCELLED;
    bool is_to_blame = failed && judge_opinion(interactor) != JUDGE_INTERNAL_ERROR &&
                       (solution_first || has_accepted(0, interactor));
    judge_note_run(result);
    if (!is_limit(solution->status) && !is_to_blame)
        judge_note_opinion("interactor", interactor, test->points, result);
}

int judge_talk_run(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct judge_test_result *result,
    struct run_result *interactor, struct err *err)
{
    static char *log_name[] = {(char *)"output.txt", NULL};
    static const struct strv log_glob = {.items = log_name, .count = 1};
    struct talk talk = {.bench = bench,
        .result = result,
        .ways = {{.read_fd = -1, .write_fd = -1}, {.read_fd = -1, .write_fd = -1}},
        .box_fds = {{-1, -1}, {-1, -1}},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .held_fd = -1,
        .over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .solution_cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    struct run_file items[2];
    const struct run_files list = {.items = items, .count = 2};
    judge_fill_file(&items[0], "input.txt", files->input.data, files->input.size);
    judge_fill_file(&items[1], "answer.txt", files->answer.data, files->answer.size);
    int r = talk.solution_cancel_fd < 0 || talk.over_fd < 0 ? -errno : 0;
    if (r == 0 && (r = open_way(&talk, true, bench->spec->transcript)) == 0)
        r = open_way(&talk, false, bench->spec->transcript);
    if (r < 0) {
        close_all(&talk);
        return err_set(err, ERR_UNAVAILABLE, -r, "cannot make a pipe: %s", strerror(-r));
    }
    talk.solution_variant =
        (struct run_variant){.args = test->has_args ? &test->args : NULL, .stdin_fd = -1};
    struct run_variant interactor_variant = {
        .files = &list, .collect = bench->programs.checker ? &log_glob : NULL, .stdin_fd = -1};
    r = run_both(&talk, &interactor_variant, interactor, err);
    result->other_cpu_ms += interactor->run.usage.cpu_ms;
    if (r == 0)
        blame(&talk, test, &interactor->run);
    close_all(&talk);
    return r;
}
