% Predicates for scripts beside Trealla's own, and how the verdict is written. Read before the script.
:- set_prolog_flag(double_quotes, atom).
:- dynamic((evaluate/1, valid/0, score/1, error/1, '$loaded'/0)).

% As in SWI-Prolog, except that texts are atoms.
string(X) :- atom(X).
string_concat(A, B, C) :- ( ground(A-B) -> '$text'(A, X), '$text'(B, Y), atom_concat(X, Y, C) ; atom_concat(A, B, C) ).
string_chars(S, Cs) :- ( nonvar(S) -> '$text'(S, A), atom_chars(A, Cs) ; atom_chars(S, Cs) ).
string_to_atom(S, A) :- ( nonvar(S) -> '$text'(S, A) ; S = A ).
upcase_atom(A, U) :- string_upper(A, Cs), atom_chars(U, Cs).
downcase_atom(A, L) :- string_lower(A, Cs), atom_chars(L, Cs).
sumlist(L, S) :- sum_list(L, S).
aggregate_all(What, G, R) :- '$aggregate'(What, G, R).
'$aggregate'(count, G, N) :- findall(x, G, L), length(L, N).
'$aggregate'(sum(X), G, S) :- findall(X, G, L), sum_list(L, S).
'$aggregate'(max(X), G, M) :- findall(X, G, L), max_list(L, M).
'$aggregate'(min(X), G, M) :- findall(X, G, L), min_list(L, M).
'$aggregate'(bag(X), G, L) :- findall(X, G, L).
'$aggregate'(set(X), G, S) :- findall(X, G, L), sort(L, S).
'$text'(X, A) :- ( atom(X) -> A = X ; number(X) -> number_codes(X, Cs), atom_codes(A, Cs) ; atom_chars(A, X) ).

>>(Ps, B, A) :- '$lambda'(Ps, B, [A]).
>>(Ps, B, A, C) :- '$lambda'(Ps, B, [A, C]).
>>(Ps, B, A, C, D) :- '$lambda'(Ps, B, [A, C, D]).
>>(Ps, B, A, C, D, E) :- '$lambda'(Ps, B, [A, C, D, E]).
'$lambda'(Ps, B, As) :- copy_term(Ps-B, Given-Body), '$bind'(Given, As, Rest), G =.. [call, Body | Rest], G.
'$bind'([P | Ps], [A | As], Rest) :- !, P = A, '$bind'(Ps, As, Rest).
'$bind'(_, Rest, Rest).

json_get(json(Pairs), Key, Value) :- member(Key = Found, Pairs), !, Value = Found.

% Read the script up to the sentinel that the host appends, then write its verdict between two nonces.
'$run' :-
    ( catch(consult(user), E, true) -> true ; true ),
    ( nonvar(E) -> '$tell'(raised, E)
    ; \+ '$loaded' -> '$tell'(unread, [])
    ; catch('$verdict'(Kind, Value), F, (Kind = raised, Value = F)) -> '$tell'(Kind, Value)
    ; '$tell'(failed, []) ).

'$verdict'(Kind, Value) :-
    ( '$has'(evaluate, 1) -> Kind = gave, evaluate(Value) ; '$parts'(Ps), '$judged'(Ps, Kind, Value) ).
'$has'(Name, Arity) :- functor(Head, Name, Arity), catch(clause(Head, _), _, fail), !.

'$judged'([], none, []) :- !.
'$judged'(Parts, gave, json(Parts)).
'$parts'(Parts) :- '$valid'(V), '$score'(S), '$errors'(E), append([V, S, E], Parts).
'$valid'(V) :- ( '$has'(valid, 0) -> ( valid -> V = [valid = true] ; V = [valid = false] ) ; V = [] ).
'$score'(S) :- ( '$has'(score, 1), score(N) -> S = [score = N] ; S = [] ).
'$errors'(E) :- ( '$has'(error, 1) -> findall(M, error(M), Ms), E = [errors = Ms] ; E = [] ).

'$tell'(Kind, Value) :-
    '$nonce'(N), write(N), write(Kind), write(' '),
    ( Kind == raised -> write_term_to_chars(Value, [quoted(true)], Cs), '$string'(Cs) ; '$json'(Value) ),
    write(N), nl.

% Terms as JSON: json([k=v]) and a list of k=v are objects, true, false and null are themselves, atoms texts.
'$json'(X) :- var(X), !, write(null).
'$json'(X) :- float(X), !, format('~17e', [X]). % `write` has only 15 digits, and no -0.0
'$json'(X) :- number(X), !, write(X).
'$json'([]) :- !, write('[]').
'$json'({}) :- !, write('{}').
'$json'(json([])) :- !, write('{}').
'$json'(json(Pairs)) :- '$is_object'(Pairs), !, write('{'), '$pairs'(Pairs), write('}').
'$json'([P | Ps]) :- '$is_object'([P | Ps]), !, write('{'), '$pairs'([P | Ps]), write('}').
'$json'([X | Xs]) :- '$is_list'(Xs), !, write('['), '$json'(X), '$items'(Xs), write(']').
'$json'(X) :- ( X == true ; X == false ; X == null ), !, write(X).
'$json'(X) :- atom(X), !, atom_chars(X, Cs), '$string'(Cs).
'$json'(X) :- write_term_to_chars(X, [quoted(true)], Cs), '$string'(Cs).
'$is_object'([P | Ps]) :- nonvar(P), P = (_ = _), ( Ps = [] -> true ; '$is_object'(Ps) ).
'$is_list'([]) :- !.
'$is_list'([_ | Xs]) :- '$is_list'(Xs).
'$items'([]).
'$items'([X | Xs]) :- write(','), '$json'(X), '$items'(Xs).
'$pairs'([K = V]) :- !, '$pair'(K, V).
'$pairs'([K = V | Ps]) :- '$pair'(K, V), write(','), '$pairs'(Ps).
'$pair'(K, V) :- ( atom(K) -> atom_chars(K, Cs) ; write_term_to_chars(K, [], Cs) ), '$string'(Cs), write(':'), '$json'(V).
'$string'(Cs) :- put_char('"'), '$chars'(Cs), put_char('"').
'$chars'([]).
'$chars'([C | Cs]) :- char_code(C, N), '$char'(N, C), '$chars'(Cs).
'$char'(34, _) :- !, put_char('\\'), put_char('"').
'$char'(92, _) :- !, put_char('\\'), put_char('\\').
'$char'(N, _) :- N < 32, !, H is N // 16, L is N mod 16, write('\\u00'), '$digit'(H), '$digit'(L).
'$char'(_, C) :- put_char(C).
'$digit'(N) :- ( N < 10 -> C is 48 + N ; C is 87 + N ), char_code(D, C), put_char(D).
