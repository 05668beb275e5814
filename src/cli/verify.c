/* SPDX-License-Identifier: Apache-2.0 */

/* hermes verify: checks that an answer of POST /v1/judge is what the server signed. */

#include "cli/cli.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/input.h"
#include "cli/options.h"
#include "judge/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPT_KEY_FILE = 256, OPT_REQUEST };
/* In bytes. */
enum { ANSWER_MAX = 1 << 30, KEY_MAX = 4096 };
enum { EXIT_FORGED = 1 };

static const struct option_row options[] = {
    {"key-file", OPT_KEY_FILE, "FILE",
        "file with the key (default: the variable HERMES_SIGNING_KEY)"},
    {"request", OPT_REQUEST, "FILE", "also check that the answer belongs to this request"},
    {0},
};

const struct option_table verify_options = {
    .summary = "check the signature of a judgement",
    .command = "hermes verify",
    .operands = "ANSWER|-",
    .rows = options,
    .before = "Checks the signature of an answer of POST /v1/judge (- reads it from stdin).",
    .after =
        "Exit status: 0 the signature matches; 1 it does not, or it is missing; 2 wrong usage.",
};

struct verify_args {
    const char *key_file;
    const char *request;
    const char *answer;
};

static void take_option(void *to, int key, char *arg)
{
    struct verify_args *args = to;
    switch (key) {
    case OPT_KEY_FILE:
        args->key_file = arg;
        break;
    case OPT_REQUEST:
        args->request = arg;
        break;
    case OPTION_NONE:
        if (args->answer)
            options_misuse(verify_options.command, "too many arguments: `%s`", arg);
        args->answer = arg;
        break;
    default:
        break;
    }
}

/* Reads the key from the file, without its newline, or from the environment. */
static int read_key(const struct verify_args *args, struct buf *to, struct err *err)
{
    const char *from_env = getenv("HERMES_SIGNING_KEY");
    int r = 0;
    buf_init(to, KEY_MAX);
    if (args->key_file)
        r = input_read(args->key_file, KEY_MAX, to, err);
    else if (from_env && buf_append_str(to, from_env) < 0)
        return err_set(
            err, ERR_TOO_LARGE, EFBIG, "HERMES_SIGNING_KEY is larger than %d bytes", KEY_MAX);
    while (to->len && (to->data[to->len - 1] == '\n' || to->data[to->len - 1] == '\r'))
        to->data[--to->len] = '\0';
    if (r == 0 && to->len == 0)
        return err_set(err, ERR_INVALID, EINVAL,
            "the key is missing; set HERMES_SIGNING_KEY or use --key-file");
    return r;
}

static int forged(const char *why)
{
    (void)fprintf(stderr, "hermes verify: %s\n", why);
    return EXIT_FORGED;
}

static int check(const json_t *answer, const char *key, const struct buf *request)
{
    const json_t *signature = json_object_get(answer, "signature");
    const char *signed_hash = json_string_value(json_object_get(signature, "request_sha256"));
    char hash[JUDGE_HASH_HEX];
    int r = judge_json_verify(answer, key);
    if (r == -ENOENT)
        return forged("the answer is not signed");
    if (r < 0)
        return forged(
            "the signature does not match: the answer was changed, or this is not the key");
    if (request) {
        judge_hash(request->data ? request->data : "", request->len, hash);
        if (!str_eq(hash, signed_hash))
            return forged("the answer is genuine, but it answers another request");
    }
    (void)printf("signature matches, request %s\n", signed_hash ? signed_hash : "?");
    return 0;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_args args = {0};
    struct err err = {0};
    cleanup_buf struct buf text = {0};
    cleanup_buf struct buf key = {0};
    cleanup_buf struct buf request = {0};
    options_parse(&verify_options, argc, argv, take_option, &args);
    if (!args.answer)
        options_misuse(verify_options.command,
            "missing argument ANSWER (use - to read it from standard input)");
    int r = read_key(&args, &key, &err);
    if (r == 0)
        r = input_read(args.answer, ANSWER_MAX, &text, &err);
    if (r == 0 && args.request)
        r = input_read(args.request, ANSWER_MAX, &request, &err);
    if (r < 0)
        return cli_fail("verify", &err);
    json_t *answer = json_loadb(
        text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(answer)) {
        json_decref(answer);
        return forged("this is not an answer: it is not a JSON object");
    }
    int status = check(answer, key.data, args.request ? &request : NULL);
    json_decref(answer);
    return status;
}
