"""What people say of answers: sets of questions to rate, and a journal that loses nothing."""
