/* SPDX-License-Identifier: Apache-2.0 */

/* See test.h. A comparer reads the output while it comes and keeps none of it. A checker gets
 * the output as a file, so in that case all of it is kept, within the solution's output
 * limit. */

#include "judge/test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STDIN_IN_MEMORY = 16 << 20, /* bytes; a larger file goes through a pipe */
    FILE_MAX = 512 << 20,       /* bytes of a file for a checker or interactor */
    OUTPUT_SLACK = 64 << 10,    /* bytes beyond twice the expected text */
};

static void say(struct judge_test_result *result, enum judge_verdict verdict, const char *fmt,
    ...) __attribute__((format(printf, 3, 4)));
static void say(
    struct judge_test_result *result, enum judge_verdict verdict, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(result->message, sizeof(result->message), fmt, args);
    va_end(args);
    result->verdict = verdict;
}

void judge_note_run(struct judge_test_result *result)
{
    static const enum judge_verdict verdicts[RUN_STATUS_COUNT] = {
        [RUN_QUEUED] = JUDGE_INTERNAL_ERROR,
        [RUN_RUNNING] = JUDGE_INTERNAL_ERROR,
        [RUN_OK] = JUDGE_ACCEPTED,
        [RUN_RUNTIME_ERROR] = JUDGE_RUNTIME_ERROR,
        [RUN_SIGNALED] = JUDGE_SIGNALED,
        [RUN_TIME_LIMIT] = JUDGE_TIME_LIMIT,
        [RUN_MEMORY_LIMIT] = JUDGE_MEMORY_LIMIT,
        [RUN_OUTPUT_LIMIT] = JUDGE_OUTPUT_LIMIT,
        [RUN_COMPILE_ERROR] = JUDGE_COMPILE_ERROR,
        [RUN_CANCELLED] = JUDGE_SKIPPED,
        [RUN_INTERNAL_ERROR] = JUDGE_INTERNAL_ERROR,
    };
    const struct stage_result *run = &result->run.run;
    result->verdict = verdicts[run->status];
    (void)snprintf(result->message, sizeof(result->message), "%s", run->message);
    if (run->status == RUN_RUNTIME_ERROR && !run->message[0])
        say(result, JUDGE_RUNTIME_ERROR, "exited with status %d", run->exit_code);
    if (run->status == RUN_SIGNALED && !run->message[0])
        say(result, JUDGE_SIGNALED, "died of %s", run_signal_name(run->signal));
}

const struct strv *judge_file_args(void)
{
    static char *items[] = {
        (char *)"input.txt", (char *)"output.txt", (char *)"answer.txt", NULL};
    static const struct strv args = {.items = items, .count = 3};
    return &args;
}

void judge_fill_file(struct run_file *file, const char *name, const char *data, size_t size)
{
    *file = (struct run_file){
        .name = (char *)name, .content = (char *)(data ? data : ""), .size = size};
}

/* Reads "points 3.5 text" or "3.5 text", as testlib's quitp() writes it. */
static bool read_points(const char *text, double *ret)
{
    char *end;
    if (str_has_prefix(text, "points"))
        text += strlen("points");
    text += strspn(text, " \t\r\n");
    if (!(*text >= '0' && *text <= '9') && *text != '.')
        return false;
    *ret = strtod(text, &end);
    return end > text && *ret >= 0;
}

/* Exit statuses of testlib. */
static const struct {
    int status;
    enum judge_verdict verdict;
} opinions[] = {
    {0, JUDGE_ACCEPTED}, {1, JUDGE_WRONG_ANSWER}, {2, JUDGE_PRESENTATION_ERROR},
    {4, JUDGE_PRESENTATION_ERROR}, /* extra output after the answer */
    {7, JUDGE_WRONG_ANSWER},       /* partial points */
    {8, JUDGE_PRESENTATION_ERROR}, /* the output ends too early */
};

enum judge_verdict judge_opinion(const struct stage_result *stage)
{
    if (stage->status == RUN_CANCELLED)
        return JUDGE_SKIPPED;
    for (size_t i = 0; stage->exited && i < sizeof(opinions) / sizeof(opinions[0]); i++) {
        if (opinions[i].status == stage->exit_code)
            return opinions[i].verdict;
    }
    return JUDGE_INTERNAL_ERROR;
}

void judge_note_opinion(const char *who, const struct stage_result *stage, double max_points,
    struct judge_test_result *result)
{
    const char *text = stage->err.data ? stage->err.data : "";
    enum judge_verdict verdict = judge_opinion(stage);
    double points;
    if (verdict == JUDGE_INTERNAL_ERROR) {
        say(result, verdict, "the %s failed (%s%s%s): %.300s", who,
            run_status_name(stage->status), stage->message[0] ? ", " : "", stage->message,
            text);
        return;
    }
    say(result, verdict, "%.400s", verdict == JUDGE_SKIPPED ? "cancelled" : text);
    result->points = verdict == JUDGE_ACCEPTED ? max_points : 0;
    if (verdict == JUDGE_SKIPPED || stage->exit_code != 7)
        return;
    if (!read_points(text, &points)) {
        say(result, JUDGE_INTERNAL_ERROR,
            "the %s exited with 7 (points) but wrote no points to stderr: %.200s", who, text);
        return;
    }
    result->points = points < max_points ? points : max_points;
    if (points >= max_points)
        result->verdict = JUDGE_ACCEPTED;
}

/* Returns a text as bytes in memory. unload() frees *ret when it is not the text's own
 * memory. */
static int load(const struct judge_text *text, struct judge_text *ret, struct err *err)
{
    cleanup_buf struct buf b = {.max = FILE_MAX};
    *ret = *text;
    if (!text->path)
        return 0;
    int r = fs_read_file(AT_FDCWD, text->path, &b);
    if (r < 0)
        return err_set(err, r == -EMSGSIZE ? ERR_TOO_LARGE : ERR_INVALID, -r,
            "cannot read %s: %s", text->path, strerror(-r));
    ret->data = buf_take(&b, &ret->size);
    return 0;
}

static void unload(const struct judge_text *text, struct judge_text *loaded)
{
    if (loaded->data != text->data)
        free(loaded->data);
}

/* The most bytes that a test may write: the limit of the request, else enough for any right
 * answer. */
static uint64_t stdout_max(const struct judge_bench *bench, const struct judge_test *test)
{
    uint64_t named = bench->spec->solution.limits.output_kb << 10;
    uint64_t usual = engine_program_limits(bench->programs.solution)->output_kb << 10;
    uint64_t ample = 2 * (uint64_t)test->expected.size + OUTPUT_SLACK;
    return named ? named : usual > ample ? usual : ample;
}

static int run_checker(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, const char *output, size_t output_size,
    struct judge_test_result *result, struct err *err)
{
    struct run_file items[3];
    const struct run_files list = {.items = items, .count = 3};
    const struct run_variant variant = {
        .files = &list, .stdin_fd = -1, .box_stdin_fd = -1, .box_stdout_fd = -1};
    const struct run_watch watch = {.cancel_fd = bench->cancel_fd, .purse = bench->purse};
    struct run_result checked;
    judge_fill_file(&items[0], "input.txt", files->input.data, files->input.size);
    judge_fill_file(&items[1], "output.txt", output, output_size);
    judge_fill_file(&items[2], "answer.txt", files->answer.data, files->answer.size);
    run_result_init(&checked, JUDGE_KEPT_OUTPUT);
    int r = engine_execute(bench->programs.checker, &variant, &watch, &checked, err);
    if (r == 0)
        judge_note_opinion("checker", &checked.run, test->points, result);
    result->checker_network = take_ptr(checked.run.network);
    result->other_cpu_ms += checked.run.usage.cpu_ms;
    run_result_done(&checked);
    return r < 0 ? err_wrap(err, r, "checker") : 0;
}

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    if (stream == STREAM_STDOUT && context)
        compare_feed(context, data, len);
}

static void note_comparison(
    struct compare *compare, const struct judge_test *test, struct judge_test_result *result)
{
    enum compare_answer answer;
    char why[256];
    int r = compare_finish(compare, &answer, why, sizeof(why));
    if (r < 0) {
        say(result, JUDGE_INTERNAL_ERROR, "cannot read the expected output: %s", strerror(-r));
        return;
    }
    say(result,
        answer == COMPARE_SAME    ? JUDGE_ACCEPTED
        : answer == COMPARE_SPACE ? JUDGE_PRESENTATION_ERROR
                                  : JUDGE_WRONG_ANSWER,
        "%s", why);
    result->points = answer == COMPARE_SAME ? test->points : 0;
}

/* Runs the solution alone. Its output goes to a comparer, or is kept when compare is NULL. */
static int run_solution(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct compare *compare, struct judge_test_result *result,
    struct err *err)
{
    cleanup_close int input_fd = -1;
    struct run_variant variant = {.args = test->has_args ? &test->args : NULL,
        .stdin_data = files->input.data,
        .stdin_size = files->input.size,
        .stdin_fd = -1,
        .box_stdin_fd = -1,
        .box_stdout_fd = -1,
        .stdout_max = stdout_max(bench, test)};
    const struct run_watch watch = {.context = compare,
        .output = on_output,
        .purse = bench->purse,
        .cancel_fd = bench->cancel_fd};
    variant.stdout_kept = compare ? JUDGE_KEPT_OUTPUT : variant.stdout_max;
    if (!files->input.data && files->input.size) {
        input_fd = open(test->input.path, O_RDONLY | O_CLOEXEC);
        if (input_fd < 0)
            return err_set(err, ERR_INVALID, errno, "cannot read %s: %s", test->input.path,
                strerror(errno));
        variant.stdin_fd = input_fd;
    }
    int r = engine_execute(bench->programs.solution, &variant, &watch, &result->run, err);
    if (r == 0)
        judge_note_run(result);
    return r;
}

/* Only the beginning of the output goes into the answer. */
static void cut_output(struct stage_result *stage)
{
    struct buf *outs[] = {&stage->out, &stage->err};
    bool *cuts[] = {&stage->out_truncated, &stage->err_truncated};
    for (size_t i = 0; i < 2; i++) {
        struct buf kept;
        if (outs[i]->len <= JUDGE_KEPT_OUTPUT)
            continue;
        buf_init(&kept, JUDGE_KEPT_OUTPUT);
        kept.purse = outs[i]->purse;
        (void)buf_append(&kept, outs[i]->data, JUDGE_KEPT_OUTPUT);
        buf_done(outs[i]);
        *outs[i] = kept;
        *cuts[i] = true;
    }
}

static int run_compared(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct judge_test_result *result, struct err *err)
{
    cleanup_close int fd = -1;
    if (test->expected.path && (fd = open(test->expected.path, O_RDONLY | O_CLOEXEC)) < 0)
        return err_set(err, ERR_INVALID, errno, "cannot read %s: %s", test->expected.path,
            strerror(errno));
    const struct compare_text expected = {
        .data = test->expected.data, .size = test->expected.size, .fd = fd};
    struct compare *compare = compare_new(&bench->spec->rule, &expected);
    int r = run_solution(bench, test, files, compare, result, err);
    if (r == 0 && result->verdict == JUDGE_ACCEPTED)
        note_comparison(compare, test, result);
    compare_free(compare);
    return r;
}

static int run_checked(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct judge_test_result *result, struct err *err)
{
    int r = run_solution(bench, test, files, NULL, result, err);
    const struct buf *out = &result->run.run.out;
    if (r == 0 && result->verdict == JUDGE_ACCEPTED)
        r = run_checker(bench, test, files, out->data, out->len, result, err);
    return r;
}

/* The interactor decides. If there is a checker and the interactor accepted, the checker
 * decides on the interactor's output.txt. */
static int run_interactive(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct judge_test_result *result, struct err *err)
{
    struct run_result interactor;
    run_result_init(&interactor, JUDGE_KEPT_OUTPUT);
    int r = judge_talk_run(bench, test, files, result, &interactor, err);
    if (r == 0 && result->verdict == JUDGE_ACCEPTED && bench->programs.checker) {
        const struct run_file *log = run_files_find(&interactor.files, "output.txt");
        bool is_there = log && !log->error;
        r = run_checker(bench, test, files, is_there ? log->content : "",
            is_there ? log->size : 0, result, err);
    }
    result->interactor_network = take_ptr(interactor.run.network);
    run_result_done(&interactor);
    return r;
}

int judge_test_run(const struct judge_bench *bench, const struct judge_test *test,
    struct judge_test_result *result, struct err *err)
{
    const struct judge_programs *programs = &bench->programs;
    bool needs_files = programs->checker || programs->interactor;
    struct judge_files files = {.input = test->input, .answer = test->expected};
    int r = 0;
    if (needs_files || test->input.size <= STDIN_IN_MEMORY)
        r = load(&test->input, &files.input, err);
    if (r == 0 && needs_files)
        r = load(&test->expected, &files.answer, err);
    if (r == 0)
        r = programs->interactor ? run_interactive(bench, test, &files, result, err)
            : programs->checker  ? run_checked(bench, test, &files, result, err)
                                 : run_compared(bench, test, &files, result, err);
    result->ran = r == 0;
    cut_output(&result->run.run);
    unload(&test->input, &files.input);
    unload(&test->expected, &files.answer);
    return r;
}
