/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about Host and Origin: only spellings that browsers send mean us. */

#include "test.h"

#include "http/origin.h"

static void addresses_and_local_names_are_ours(void **state)
{
    static const char *const ours[] = {"localhost", "LOCALHOST:1", "localhost.",
        "localhost:", "a.localhost", "A.b.LocalHost.:65535", "127.0.0.1", "10.1.2.3:80",
        "127.0.0.1.", "[::1]", "[fe80::1]:8000", "[::ffff:127.0.0.1]"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        assert_true(host_is_ours(ours[i], ""));
}

static void other_names_are_not(void **state)
{
    static const char *const others[] = {"", ".", "..", "evil.example", "localhost.evil",
        ".localhost", "xlocalhost", "localhost..", "user@localhost", "localhost@evil",
        "localhost:80@evil", "localhost:0", "localhost:65536", "localhost:+1", "localhost: 1",
        "localhost:1x", "127.1", "2130706433", "0x7f000001", "127.0.0.1.evil", "::1", "[::1",
        "[::1]x", "[evil]", "[127.0.0.1]", "[::1%25lo]", "a b", "a,b", "localhost/",
        "localhost#", "localhost?x", "localhost\\evil", "loc%61lhost"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(host_is_ours(others[i], "code.example"));
}

static void named_hosts_are_ours(void **state)
{
    const char *hosts = " code.example,other.example:8443, [2001:db8::1] ,bad/name";
    assert_true(host_is_ours("code.example", hosts));
    assert_true(host_is_ours("Code.Example.:9", hosts));
    assert_true(host_is_ours("other.example:8443", hosts));
    assert_false(host_is_ours("other.example", hosts));
    assert_false(host_is_ours("other.example:80", hosts));
    assert_false(host_is_ours("x.code.example", hosts));
    assert_false(host_is_ours("bad/name", hosts));
    assert_false(host_is_ours("code", hosts));
}

static void a_page_is_ours_by_name_and_port(void **state)
{
    static const struct {
        const char *origin, *host;
        bool same;
    } rows[] = {
        {"http://localhost:8000", "localhost:8000", true},
        {"http://LOCALHOST:8000", "localhost:8000", true},
        {"http://localhost", "localhost", true},
        {"http://localhost:80", "localhost", true},
        {"https://code.example", "code.example", true},
        {"https://code.example", "code.example:443", true},
        {"http://[::1]:8000", "[::1]:8000", true},
        {"http://localhost", "localhost:8000", false},
        {"http://localhost:8000", "localhost", false},
        {"http://localhost:8001", "localhost:8000", false},
        {"http://code.example", "code.example:443", false},
        {"http://127.0.0.1:8000", "localhost:8000", false},
        {"http://localhost:8000/", "localhost:8000", false},
        {"http://localhost:8000@evil.example", "localhost:8000", false},
        {"localhost:8000", "localhost:8000", false},
        {"ftp://localhost", "localhost", false},
        {"http://", "", false},
        {"null", "null", false},
        {"", "", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(origin_is_host(rows[i].origin, rows[i].host), rows[i].same);
}

static void lists_are_compared_letter_by_letter(void **state)
{
    const char *list = "http://localhost:3000, https://a.example";
    assert_true(origin_is_listed("http://localhost:3000", list));
    assert_true(origin_is_listed("https://a.example", list));
    assert_false(origin_is_listed("https://a.example/", list));
    assert_false(origin_is_listed("https://A.example", list));
    assert_false(origin_is_listed("https://a.exampl", list));
    assert_false(origin_is_listed("", list));
    assert_false(origin_is_listed("*", list));
    assert_true(origin_is_listed("anything", "x, *"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_and_local_names_are_ours),
        cmocka_unit_test(other_names_are_not),
        cmocka_unit_test(named_hosts_are_ours),
        cmocka_unit_test(a_page_is_ours_by_name_and_port),
        cmocka_unit_test(lists_are_compared_letter_by_letter),
    };
    return cmocka_run_group_tests_name("origin", tests, NULL, NULL);
}
