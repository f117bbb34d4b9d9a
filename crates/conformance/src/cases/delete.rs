use super::cases;
cases! { "delete": }
