CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT NOT NULL, born INTEGER);
INSERT INTO person(name, born) VALUES ('Žofie', 1990), ('Bob', 1985), ('Ann', 2001);
.mode csv
.headers on
SELECT name, 2024 - born AS age FROM person ORDER BY age DESC;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT sum(i * i) AS s FROM n;
SELECT name, rank() OVER (ORDER BY born) AS r FROM person;
SELECT json_extract('{"a":[1,2,{"b":"ř"}]}', '$.a[2].b') AS j, date(0, 'unixepoch') AS d, upper('abc') AS u;
BEGIN; DELETE FROM person; ROLLBACK;
SELECT count(*) AS c FROM person;
